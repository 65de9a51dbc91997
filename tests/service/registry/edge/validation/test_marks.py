"""What keys and values say of their schemas, against reading them one by one."""

from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.process.limits.heavy_work import HeavyWork
from service.registry.edge.validation.columns import columns_of
from service.registry.edge.validation.marks import Mark, marks_of, places_in
from service.registry.edge.validation.record_names import record_names
from storage.formats.kafka.batches import check
from storage.formats.records import HEADERS_TYPE, no_headers
from storage.schemas.source import SchemaType
from storage.topics.schema_rules import PARTS
from tests.examples import some
from tests.service.kafka.cluster import batch

pytestmark = pytest.mark.anyio

HEADER = "__value_schema_id"
GUID = UUID(int=7)

VALUES = st.one_of(
    st.none(),
    st.binary(max_size=7),
    st.builds(lambda n, data: b"\0" + n.to_bytes(4) + data, st.integers(0, 3), st.binary()),
    st.builds(lambda n: b"\0" + n.to_bytes(4), st.integers(0, 2**32 - 1)),
)
ENTRIES = st.builds(
    lambda key, value: {"key": key, "value": value},
    st.sampled_from([HEADER, "other"]),
    st.sampled_from([None, b"\1" + GUID.bytes, b"\0\0\0\0\5\2", b"\1short", b""]),
)


def expected(value: bytes | None, headers: list[dict[str, bytes]] | None) -> Mark | None:
    if value is None:
        return None
    named = [e["value"] for e in headers or () if e["key"] == HEADER and e["value"] is not None]
    if named and named[-1][:1] == b"\1" and len(named[-1]) >= 17:
        return Mark(str(GUID))
    if named and len(named[-1]) >= 5 and named[-1][0] == 0:
        return Mark(int.from_bytes(named[-1][1:5]), lead=named[-1][5:])
    if named:
        return Mark(None, fault="its header has neither 01 and a GUID nor 00 and an id")
    if len(value) >= 5 and value[0] == 0:
        return Mark(int.from_bytes(value[1:5]), 5)
    return Mark(None)


@some
@given(
    st.lists(st.tuples(VALUES, st.none() | st.lists(ENTRIES, max_size=3)), min_size=1), st.data()
)
def test_every_value_has_the_mark_that_it_carries(
    records: list[tuple[bytes | None, list[dict[str, bytes]] | None]], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(records) - 1))
    values = pa.array([value for value, _ in records], pa.binary())[start:]
    headers = pa.array([entries for _, entries in records], HEADERS_TYPE)[start:]

    marks = marks_of(places_in(values), headers, HEADER)

    found: dict[int, Mark] = {}
    order = marks.order
    for number in order:
        found |= {int(row): marks.distinct[number] for row in marks.rows(number)}
    assert [found.get(row) for row in range(len(values))] == [
        expected(*record) for record in records[start:]
    ]
    first = [marks.first_rows(number, 1) for number in order]
    assert first == sorted(first) == [[marks.rows(number)[0]] for number in order]


def test_a_column_of_nulls_says_nothing() -> None:
    assert marks_of(places_in(pa.nulls(3, pa.binary())), no_headers(3), HEADER).order == []


async def test_a_batch_of_kafkas_protocol_says_the_same() -> None:
    count = 200
    guid = {3: [("a", b"b"), (HEADER, b"\1" + GUID.bytes)], 9: [(HEADER, b"")]}
    keys = [None if n % 3 else b"\0\0\0\0%c" % n for n in range(count)]
    values = [None if n == 7 else b"\0\0\0\0\1data"[: n % 11] for n in range(count)]
    sent = batch(*values, keys=keys, headers=guid, codec=1)
    kept = check(
        sent,
        record_bytes_max=100,
        needs_keys=False,
        decompressed_bytes_max=10**6,
        keeps_open=True,
    )
    assert kept.opened is not None
    opened = await columns_of(kept, HeavyWork())
    decoded = await columns_of(replace(kept, opened=None), HeavyWork())

    assert opened.count == decoded.count == count
    for part in PARTS:
        assert opened.values(part).equals(decoded.values(part))
        one, other = (
            marks_of(each.places(part), each.headers, HEADER) for each in (opened, decoded)
        )
        assert [one.distinct[n] for n in one.order] == [other.distinct[n] for n in other.order]
        for mine, theirs in zip(one.order, other.order, strict=True):
            assert one.rows(mine).tolist() == other.rows(theirs).tolist()


PROTO = """syntax = "proto3";
package shop.v1;

import "a.proto";

option java_package = "message Wrong {";

message Order {
  string message = 1;
  message Line {
    int32 amount = 1;
  }
  oneof kind {
    int32 a = 2;
  }
  enum Color {
    RED = 0;
  }
}
message Other {}
"""


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        (SchemaType.AVRO, '{"type": "record", "name": "R", "fields": []}', ["R"]),
        (SchemaType.AVRO, '{"type": "record", "name": "R", "namespace": "a.b"}', ["a.b.R"]),
        (SchemaType.AVRO, '{"type": "record", "name": "c.R", "namespace": "a.b"}', ["c.R"]),
        (SchemaType.AVRO, '"string"', []),
        (SchemaType.AVRO, '["null", "string"]', []),
        (SchemaType.JSON, '{"title": "注文"}', ["注文"]),
        (SchemaType.JSON, "true", []),
        (SchemaType.PROTOBUF, PROTO, ["shop.v1.Order", "shop.v1.Order.Line", "shop.v1.Other"]),
    ],
)
def test_the_name_of_a_record_is_in_its_text(kind: SchemaType, text: str, names: list[str]) -> None:
    assert record_names(kind, text) == names
