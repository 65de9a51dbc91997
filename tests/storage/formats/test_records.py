"""Record batches: rows survive the conversion, and absent headers take no memory."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.records import HEADERS_TYPE, RECORD_SCHEMA, no_headers, record_batch
from tests.examples import few
from tests.storage.helpers.logs import ROWS


@few
@given(ROWS)
def test_a_batch_holds_its_rows(rows: list[tuple[int, bytes | None, bytes | None, object]]) -> None:
    stamps, keys, values, headers = zip(*rows, strict=True)

    batch = record_batch(stamps, keys, values, headers)

    batch.validate(full=True)
    assert batch.schema == RECORD_SCHEMA
    assert [tuple(row.values()) for row in batch.to_pylist()] == rows


def test_text_becomes_utf8() -> None:
    [row] = record_batch([1], ["é"], ["ç"], [[{"key": "k", "value": "ã"}]]).to_pylist()

    assert row["key"] == "é".encode()
    assert row["value"] == "ç".encode()
    assert row["headers"] == [{"key": "k", "value": "ã".encode()}]


@few
@given(st.integers(0, 1000))
def test_absent_headers_are_nulls_that_take_no_memory(count: int) -> None:
    headers = no_headers(count)

    headers.validate(full=True)
    assert headers.type == HEADERS_TYPE
    assert headers.null_count == len(headers) == count
    assert len(headers.values) == 0
    assert pa.array([None] * count, HEADERS_TYPE).equals(headers)
