"""Typed columns beside the raw bytes, as DuckDB sees them."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.formats import compacted, compacted_footer
from storage.formats.compacted import SCHEMA
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.maintenance.compaction.plan import MIB
from storage.maintenance.compaction.typed import DataSchema
from storage.maintenance.fsck import check_lane
from storage.schemas.carried import SchemaRef
from storage.schemas.columns import Decoder
from storage.schemas.columns_avro import AvroDecoder
from storage.schemas.columns_json import JsonDecoder
from storage.schemas.columns_rows import Indexes
from storage.schemas.framing import framed
from storage.schemas.source import SchemaSource, SchemaType
from storage.topics.items import Topic
from tests.storage.maintenance.compaction.laboratory import (
    Laboratory,
    Record,
    TestStores,
    last_of_each_key,
)

pytestmark = pytest.mark.anyio

JSON_SCHEMA = {"type": "object", "properties": {"note": {"type": "string"}}}


def record(**fields: Any) -> dict[str, Any]:
    parts = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Order", "fields": parts}


AVRO: dict[int, Any] = {
    1: record(amount="int", city="string"),
    2: record(amount="string", city="string", paid="boolean"),
    3: record(amount="long"),
}


@dataclass
class Known:
    decoders: dict[SchemaRef, Decoder]
    ids: Sequence[int] = ()

    async def find(self, ref: SchemaRef) -> DataSchema | None:
        return _One(int(ref), self.decoders[ref]) if ref in self.decoders else None

    async def versions(self, topic: str, column: str) -> Sequence[int]:
        return self.ids if column == "value" else []


@dataclass
class _One:
    schema_id: int
    only: Decoder
    has_indexes: bool = False

    def decoder(self, indexes: Indexes) -> Decoder | None:
        return self.only


def known() -> Known:
    avro = {
        number: AvroDecoder(SchemaSource(SchemaType.AVRO, json.dumps(schema)))
        for number, schema in AVRO.items()
    }
    return Known({**avro, 9: JsonDecoder(json.dumps(JSON_SCHEMA))})


def avro(number: int, **value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO[number], value)
    return framed(number, out.getvalue())


def laboratory(folder: Path, versions: Sequence[int] = ()) -> Laboratory:
    lab = Laboratory(root=folder)
    lab.work.stores = TestStores(lab.zones, lab.world, schemas=Known(known().decoders, versions))
    return lab


async def files(lab: Laboratory, folder: Path, topic: Topic) -> list[Path]:
    """Return the segments of a partition in the order of their offsets."""
    listed = await lab.catalog.segment_list(await lab.head(topic), LanePartition(0))
    return [folder / "a" / each.key(topic.topic_id) for each in listed.segments]


async def check(lab: Laboratory, topic: Topic, records: list[Any]) -> None:
    assert await lab.read(topic) == records
    assert not (await check_lane(lab.zones, await lab.head(topic))).problems


def rows(file: Path, columns: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"SELECT {columns} FROM '{file}' ORDER BY \"offset\"").fetchall()


OLD: list[Record] = [
    (b"a", avro(1, amount=1, city="Faro")),
    (b"b", b"plain"),
    (avro(3, amount=7), avro(2, amount="two", city="Braga", paid=True)),
    (b"d", None),
]
NEW: list[Record] = [
    (b"a", avro(3, amount=2**40)),
    (b"e", framed(8, b"of no schema")),
    (b"f", framed(9, b'{"note": "hi", "more": 1}')),
    (b"g", framed(1, b"\xff")),
]
FIELDS = "value_.amount, value_.amount_v2, value_.city, value_.paid, value_.note, key_.amount"
EXPECTED = [
    (1, None, "Faro", None, None, None),
    (None, None, None, None, None, None),
    (None, "two", "Braga", True, None, 7),
    (None, None, None, None, None, None),
    (2**40, None, None, None, None, None),
    (None, None, None, None, None, None),
    (None, None, None, None, "hi", None),
    (None, None, None, None, None, None),
]


async def test_columns_are_the_union_of_all_schemas_and_survive_merges(tmp_path: Path) -> None:
    lab = laboratory(tmp_path)
    topic = await lab.create(table_columns="true")
    await lab.append(topic, OLD)
    await lab.compact(topic)
    [file] = await files(lab, tmp_path, topic)
    few = "value_.amount, value_.amount_v2, value_.city, value_.paid, NULL, key_.amount"
    assert rows(file, few) == EXPECTED[:4]
    await check(lab, topic, lab.log(topic))

    # Much more comes, so what is there is merged with it.
    await lab.append(topic, NEW)
    await lab.append(topic, [(None, b"-" + lab.chance.randbytes(20_000))])
    await lab.compact(topic)
    [file] = await files(lab, tmp_path, topic)
    assert rows(file, FIELDS)[:8] == EXPECTED
    assert [row[0] for row in rows(file, "value")] == [value for _, _, value in lab.log(topic)]
    await check(lab, topic, lab.log(topic))
    # Only columns that other programs read have changed.
    assert pq.read_schema(file).names == [*SCHEMA.names, "value_", "key_"]
    bounds = pq.read_metadata(file).row_group(0).column(6)
    assert (bounds.path_in_schema, bounds.statistics.max) == ("value_.amount", 2**40)


async def test_a_compaction_by_key_writes_columns_of_what_stays(tmp_path: Path) -> None:
    lab = laboratory(tmp_path, [1, 2, 3])
    topic = await lab.create(cleanup_policy="compact", table_columns="true")
    for records in (OLD, NEW):
        await lab.append(topic, records)
        await lab.roll(topic)
    # In ranges, with a shuffle between them.
    await lab.compact(topic, range_bytes_min=1, range_bytes_max=1)
    assert lab.work.shuffles
    found = await files(lab, tmp_path, topic)
    assert len(found) > 1
    table = duckdb.sql(f"SELECT * FROM read_parquet({[*map(str, found)]}, union_by_name=true)")
    columns = table.project('"offset", value_.amount, value_.amount_v2').order('"offset"')
    last = last_of_each_key(lab.log(topic), 8)
    assert columns.fetchall() == [(offset, *EXPECTED[offset][:2]) for offset, _, _ in last]
    # It is a number in all files, in those too that have only texts.
    assert table.aggregate("sum(value_.amount)").fetchall() == [(2**40,)]
    await check(lab, topic, last)


async def test_a_file_in_which_nothing_decodes_has_no_columns(tmp_path: Path) -> None:
    lab = laboratory(tmp_path)
    topic = await lab.create(table_columns="true")
    await lab.append(topic, [(b"k", b"plain"), (None, framed(1, b"")), (b"", framed(8, b"x"))])
    await lab.compact(topic)
    [file] = await files(lab, tmp_path, topic)
    assert pq.read_schema(file).names == SCHEMA.names
    await check(lab, topic, lab.log(topic))

    # Nor has one of a topic that does not ask for them.
    topic = await lab.create("other")
    await lab.append(topic, OLD)
    await lab.compact(topic)
    [file] = await files(lab, tmp_path, topic)
    assert pq.read_schema(file).names == SCHEMA.names


async def test_a_schema_that_comes_late_begins_a_file_until_they_are_merged(
    tmp_path: Path,
) -> None:
    lab = laboratory(tmp_path)
    topic = await lab.create(table_columns="true")
    # Row groups are full after four megabytes, before compression.
    for number in range(6):
        await lab.append(topic, [(None, avro(1, amount=number, city="x" * MIB))])
    await lab.append(topic, [(None, avro(2, amount="z", city="", paid=False))])
    await lab.compact(topic)
    first, second = await files(lab, tmp_path, topic)
    assert rows(first, "value_") == [({"amount": n, "city": "x" * MIB},) for n in range(6)]
    assert rows(second, "value_.amount_v2, value_.amount") == [("z", None)]
    await check(lab, topic, lab.log(topic))

    await lab.append(topic, [(None, b"-" + lab.chance.randbytes(400_000))])
    await lab.append(topic, [(None, avro(1, amount=99, city=""))])
    await lab.compact(topic)
    [file] = await files(lab, tmp_path, topic)
    amounts = [row[0] for row in rows(file, "value_.amount")]
    assert amounts == [*range(6), None, None, 99]
    await check(lab, topic, lab.log(topic))


def test_a_footer_names_the_schemas_of_its_columns(tmp_path: Path) -> None:
    columns = [compacted.ColumnSchema("value", 1, ()), compacted.ColumnSchema("key", "g", (1, 0))]

    class Wide:
        rows_max = 1000

        def widened(self, table: pa.Table) -> pa.Table:
            return table.append_column("key__v2", pa.array(["x"]))

        def schemas(self) -> list[compacted.ColumnSchema]:
            return columns

    file = tmp_path / "f"
    writer = compacted.CompactedWriter(
        file, topic_id=bytes(16), partition=PartitionNumber(0), start_offset=0, typed=Wide()
    )
    row = [{"offset": 0, "timestamp": 1, "key": b"k", "value": b"v", "headers": []}]
    writer.write(pa.RecordBatch.from_pylist(row, schema=SCHEMA))
    written = writer.close(1)
    assert written is not None
    data = file.read_bytes()
    footer = compacted.parse_footer(data[-written.footer_bytes :], written.footer_crc)
    assert list(footer.schemas) == columns
    group = footer.row_groups[0]
    batch = compacted.decode_row_group(footer, 0, data[group.position : group.end])
    assert batch.to_pylist() == row
    ranges = compacted.column_ranges(footer, 0, ["value"])
    pieces = [data[start:end] for start, end in ranges]
    found = compacted.decode_columns(footer, 0, ranges, pieces, ["value"])
    assert found.to_pylist() == [{"value": b"v"}]
    names = [name for name, _, _ in compacted_footer.chunks(footer, 0)]
    assert names == ["offset", "timestamp", "key", "value", "headers", "headers", "key__v2"]
