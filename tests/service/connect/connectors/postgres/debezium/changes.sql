insert into shop.types(id) values (2);
insert into shop.types values (3,true,-5,9007199254740993,4000000000,1.1,2.2,123.45,-1234567890123456789.000100,12345,'$1,234.56','tätext',E'v\t\\c','abc','CiTeXt',
 '\xdeadbeef','2020-02-29','13:51:02','13:51:02.123','13:51:02.123456','13:51:02.123789+02','2020-02-29 13:51:02','2020-02-29 13:51:02.123','2020-02-29 13:51:02.123456','2020-02-29 13:51:02.123456+02','1 year 2 mons 3 days 04:05:06.78',
 '{"a": 1}','{"b": [1,2]}','<a>x</a>','a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11','happy',5,B'1',B'10101',B'101',B'110011001100',
 '192.168.0.1/24','10.0.0.0/8','08:00:2b:01:02:03','08:00:2b:01:02:03:04:05','[1,10)','[1,10)','[1.5,2.5]','[2010-01-01 14:30, 2010-01-01 15:30)','[2010-01-01 14:30+00, 2010-01-01 15:30+00)','[2010-01-01,2010-02-01)','"a"=>"1", "b"=>NULL','(1.5,-2)','a.b.c','a fat cat',
 '{1,NULL,3}','{a,"b c",NULL,"q\"x\\y","NULL",""}','{1.5,22.25}','{2020-01-01}','{"2020-02-29 13:51:02.123456+02"}','{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}','{sad,ok}','{"{\"a\": 1}"}','{t,f,NULL}','{{1,2},{3,4}}','{Aa}','{1.5,NaN,Infinity}','{9007199254740993}','{abc}','{"\\xdead"}','{"2020-02-29 13:51:02.123456"}','{1.2.3.4}',
 '(1,1),(0,0)','a & b');
insert into shop.types(id,f4,f8,nv,n,ts6,ts3,tstz,t6,tz,iv,rts,t0) values (4,'NaN','-Infinity','NaN','NaN','infinity','infinity','infinity','24:00:00','24:00:00+00','-1 mons -3 days -00:00:01.5','empty','24:00:00');
insert into shop.types(id,f4,f8,nv,ts6,ts3,tstz,iv,m,b5,pt) values (5,3.4e38,1e308,0,'-infinity','-infinity','-infinity','0','-$0.05',B'00000','(1e10,0)');
insert into shop.types(id,nv,n,d,ts6,ts3,tstz,iv,f4,f8) values (6,1e20,0,'0044-03-15 BC','0044-03-15 12:00 BC','1960-01-01 00:00:00.001','0044-03-15 12:00+00 BC','10000 years 300 months',0.1,-0.0);
insert into shop.types(id,d,ts6,ts3,tstz,nv,t6,ts0) values (7,'12345-01-01','12345-01-01 01:01:01.000001','12345-01-01 01:01:01','2021-01-01 00:00:00+00',100,'00:00:00','1969-12-31 23:59:59');
insert into shop.defs(f,g,j,k,m,r,u,y,z) values ('f',1.5,'2020-01-01','a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11','\x00','1 day','10:00','2020-01-01 00:00+00',B'101');
update shop.defs set a=8 where id=2;
delete from shop.defs where id=2;
insert into shop.full_t values (1,'a',repeat('x',10));
update shop.full_t set v='b' where id=1;
update shop.full_t set id=5 where id=1;
delete from shop.full_t where id=5;
insert into shop.toast values (1,1,repeat('abc',3000),(select jsonb_agg(i) from generate_series(1,3000) i),decode(repeat('ab',5000),'hex'),array[repeat('q',9000)],(select array_agg(i) from generate_series(1,3000) i),repeat('1',9000)::numeric);
update shop.toast set v=2;
update shop.toast set id=2;
insert into shop.nokey values (1,'x');
insert into shop.keys2 values ('b',1,'v');
update shop.keys2 set v='w';
update shop.keys2 set a=2;
delete from shop.keys2;
insert into shop.uidx values (1,'b','c');
update shop.uidx set c='d';
update shop.uidx set a=2;
delete from shop.uidx;
begin;
insert into shop.keys2 values ('x',10,'v'),('y',11,null);
update shop.keys2 set v='w' where a=10;
commit;
truncate shop.nokey, shop.keys2;
alter table shop.keys2 add column extra int default 4;
insert into shop.keys2 values ('z',12,'v',3);
