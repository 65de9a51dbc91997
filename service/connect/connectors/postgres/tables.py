"""Tables as the catalog describes them, and types.

A change describes its table itself, as it was then. What a change does not say is looked up: which
columns are required, their defaults, the key. If the table has changed since, columns are known by
their names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from service.connect.connectors.postgres.columns import PgType

if TYPE_CHECKING:
    import asyncpg


@dataclass(frozen=True, slots=True, kw_only=True)
class PgColumn:
    name: str
    type_oid: int
    modifier: int
    is_required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PgTable:
    oid: int
    schema: str
    name: str
    columns: tuple[PgColumn, ...]
    key: tuple[str, ...] = ()
    """Of the primary key, or else of the first unique index whose columns are all required."""
    by_name: Mapping[str, PgColumn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a publication."""

    oid: int
    schema: str
    name: str
    is_root: bool
    """It has partitions, and is published in their place."""
    condition: str | None
    """Of the rows that are published; None: all."""
    columns: frozenset[str]
    """That are published; empty: all."""


_TYPES: Final = """
SELECT t.oid::int8 AS oid, t.typname AS name, t.typtype::text AS kind,
       t.typbasetype::int8 AS base, t.typtypmod AS modifier, t.typdelim::text AS delimiter,
       CASE WHEN t.typcategory = 'A' AND t.typname NOT IN ('int2vector', 'oidvector')
            THEN t.typelem::int8 ELSE 0 END AS element,
       ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid
             ORDER BY enumsortorder) AS labels
FROM pg_catalog.pg_type t
WHERE t.typtype <> 'c' AND t.typtype <> 'p'
"""
_COLUMNS: Final = """
SELECT a.attname AS name, a.atttypid::int8 AS type, a.atttypmod AS modifier,
       a.attnotnull AS required,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS standard
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_KEY: Final = """
SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(num, n)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
             WHERE k.n <= i.indnkeyatts ORDER BY k.n) AS columns
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1 AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
  AND i.indisvalid
  AND (i.indisprimary OR NOT EXISTS (
       SELECT FROM pg_catalog.pg_attribute a
       WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[]) AND NOT a.attnotnull))
ORDER BY i.indisprimary DESC, c.relname LIMIT 1
"""
_PUBLISHED: Final = """
SELECT c.oid::int8 AS oid, p.schemaname::text AS schema, p.tablename::text AS name,
       c.relkind = 'p' AS is_root, to_jsonb(p) ->> 'rowfilter' AS condition,
       ARRAY(SELECT jsonb_array_elements_text(to_jsonb(p) -> 'attnames')) AS columns
FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
WHERE p.pubname = $1
"""
_ALL: Final = """
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname !~ '^pg_'
  AND n.nspname <> 'information_schema'
ORDER BY 1, 2
"""


async def types(connection: "asyncpg.Connection[Any]") -> dict[int, PgType]:
    return {
        row["oid"]: PgType(
            oid=row["oid"],
            name=row["name"],
            kind=row["kind"],
            base_oid=row["base"],
            base_modifier=row["modifier"],
            element_oid=row["element"],
            delimiter=row["delimiter"],
            labels=tuple(row["labels"]),
        )
        for row in await connection.fetch(_TYPES)
    }


async def published(
    connection: "asyncpg.Connection[Any]", publication: str
) -> list[PublishedTable]:
    """Return the tables that a publication has, in the order in which snapshots read them."""
    rows = await connection.fetch(_PUBLISHED, publication)
    found = [
        PublishedTable(
            oid=row["oid"],
            schema=row["schema"],
            name=row["name"],
            is_root=row["is_root"],
            condition=row["condition"],
            columns=frozenset(row["columns"]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (each.schema, each.name))


async def all_tables(connection: "asyncpg.Connection[Any]") -> list[tuple[str, str]]:
    return [(row["schema"], row["name"]) for row in await connection.fetch(_ALL)]


async def table(connection: "asyncpg.Connection[Any]", oid: int, schema: str, name: str) -> PgTable:
    """Return the table with this oid as it is now; without columns, if it was dropped."""
    rows: Sequence[Any] = await connection.fetch(_COLUMNS, oid)
    columns = tuple(
        PgColumn(
            name=row["name"],
            type_oid=row["type"],
            modifier=row["modifier"],
            is_required=row["required"],
            default=row["standard"],
        )
        for row in rows
    )
    key = await connection.fetchval(_KEY, oid)
    return PgTable(
        oid=oid,
        schema=schema,
        name=name,
        columns=columns,
        key=tuple(key or ()),
        by_name={each.name: each for each in columns},
    )
