create extension if not exists hstore;
create extension if not exists citext;
create extension if not exists ltree;
create schema if not exists shop;
create type shop.mood as enum ('sad','ok','happy');
create domain shop.posint as int check (value > 0);
create table shop.types (
 id int primary key, b boolean, i2 smallint, i8 bigint, o oid, f4 real, f8 double precision,
 n numeric(10,2), nv numeric, n0 numeric(5), m money, t text, vc varchar(20), c char(5), ci citext,
 by bytea, d date, t0 time(0), t3 time(3), t6 time, tz timetz, ts0 timestamp(0), ts3 timestamp(3), ts6 timestamp, tstz timestamptz, iv interval,
 j json, jb jsonb, x xml, u uuid, e shop.mood, dom shop.posint, b1 bit(1), b5 bit(5), vb bit varying(20), vbu bit varying,
 ip inet, cd cidr, mac macaddr, mac8 macaddr8, r4 int4range, r8 int8range, rn numrange, rts tsrange, rtz tstzrange, rd daterange, hs hstore, pt point, lt ltree, tv tsvector,
 ai int[], at text[], an numeric(6,2)[], ad date[], ats timestamptz[], au uuid[], ae shop.mood[], aj jsonb[], ab bool[], a2 int[][], ac citext[], af float8[], abig bigint[], avc varchar(5)[], abytes bytea[], ats6 timestamp[], aip inet[],
 bx box, tx tsquery);
create table shop.defs (id serial primary key, a int not null default 7, b text not null default 'hey', c numeric(6,2) default 1.50, d boolean default true, e timestamptz not null default now(), f text not null, g numeric not null, h shop.mood not null default 'ok', i timestamp not null default '2020-01-02 03:04:05', j date not null, k uuid not null, l int[] not null default '{}', m bytea not null, n jsonb not null default '{}', p float8 not null default 1.5, q varchar(10) default 'x', r interval not null, s bigint generated always as identity, u time not null, v double precision default -2, w smallint default '3'::smallint, x text default null, y timestamptz not null, z bit(3) not null);
create table shop.full_t (id int primary key, v text, big text);
alter table shop.full_t replica identity full;
create table shop.toast (id int primary key, v int, big text, bj jsonb, bb bytea, ba text[], bai int[], bn numeric);
alter table shop.toast alter big set storage external;
alter table shop.toast alter bj set storage external;
alter table shop.toast alter bb set storage external;
alter table shop.toast alter ba set storage external;
alter table shop.toast alter bai set storage external;
alter table shop.toast alter bn set storage external;
create table shop.nokey (a int, b text);
create table shop.keys2 (b text not null, a int not null, v text, primary key (a, b));
create table shop.uidx (a int not null, b text, c text not null);
create unique index ui on shop.uidx(a);
alter table shop.uidx replica identity using index ui;
insert into shop.defs(f,g,j,k,m,r,u,y,z) values ('s',1.5,'2020-01-01','a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11','\x00','1 day','10:00','2020-01-01 00:00+00',B'101');
insert into shop.full_t values (100,'a','b'),(101,null,'c');
insert into shop.nokey values (7,'seven');
insert into shop.types(id,t,n,nv,ts6,tstz,ai,j,by) values (1,E'a\tb\\c\nd',1.5,12.50,'2020-02-29 13:51:02.123456','2020-02-29 13:51:02.1+02','{1,NULL}','{"a": "\\n"}','\x00ff');
