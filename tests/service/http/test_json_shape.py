"""JSON that exceeds limits is refused before it is decoded; other JSON is not."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from service.http.bodies.json_shape import check_shape
from service.http.bodies.produce import JSON, NDJSON, decode_produce
from service.process.limits.record_limits import RecordLimits
from service.routes.bodies.transactions import decode_atomic
from storage.errors import InvalidRecord, RequestTooLarge, RiachoError

MIB = 1024 * 1024
BODY_BYTES = 8 * MIB
LIMITS = RecordLimits()


def repeated(start: bytes, item: bytes, end: bytes, between: bytes = b",") -> bytes:
    count = (BODY_BYTES - len(start) - len(end)) // (len(item) + len(between))
    return start + between.join([item] * count) + end


def of_names(count: int) -> bytes:
    return b",".join(b'"%06x":"v"' % number for number in range(count))


HOSTILE: dict[str, tuple[Callable[[], bytes], type[RiachoError]]] = {
    "records": (lambda: repeated(b'{"records":[', b"{}", b"]}"), RequestTooLarge),
    "records apart": (lambda: repeated(b'{ "records" : [', b"{ }\n", b"]}"), RequestTooLarge),
    "records after others": (
        lambda: repeated(b'{"records":[{"value":"},{"},{"value":[{}]},', b"{}", b"]}"),
        RequestTooLarge,
    ),
    "a list of headers": (
        lambda: repeated(b'{"records":[{"headers":[', b'{"key":"a"}', b"]}]}"),
        InvalidRecord,
    ),
    "an object of headers": (
        lambda: b'{"records":[{},{"headers":{' + of_names(700_000) + b"}}]}",
        InvalidRecord,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_beyond_the_limits_is_refused_in_little_memory(name: str) -> None:
    make, error = HOSTILE[name]
    body = make()
    tracemalloc.start()
    try:
        with pytest.raises(error):
            decode_produce(body, JSON, now_ms=1, limits=LIMITS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The headers of one record are copied for the check.
    assert peak_bytes < len(body) + 16 * MIB


@pytest.mark.parametrize("between", [b"\n", b" ", b"", b"\n\n"])
def test_too_many_lines_are_refused_in_little_memory(between: bytes) -> None:
    body = repeated(b"", b"{}", b"", between)
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLarge):
            decode_produce(body, NDJSON, now_ms=1, limits=LIMITS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 16 * MIB


def test_an_atomic_call_is_checked_too() -> None:
    body = repeated(b'{"records":[', b'{"topic":"t"}', b"]}")

    with pytest.raises(RequestTooLarge, match="more than 100000 records"):
        decode_atomic(body, now_ms=1, limits=LIMITS)


def test_the_maximum_number_of_records_is_accepted_with_any_values() -> None:
    count = LIMITS.record_count_max
    value = {"a": {"b": [{}, {"c:{": "}:"}]}}
    body = json.dumps({"records": [{"value": value}] * count}).encode()
    assert body.count(b"{") > 2 * count

    found = decode_produce(body, JSON, now_ms=1, limits=LIMITS)

    assert found.batch.num_rows == count
    assert found.batch.column("value")[0].as_py() == json.dumps(value).encode()


def test_a_large_record_can_have_field_names_in_its_headers() -> None:
    limits = RecordLimits(record_count_max=10)
    nested = "{" + ",".join(f'"{number:03}":0' for number in range(100)) + "}"
    headers = ",".join(f'"{number}": {nested}' for number in range(100))
    body = f'{{"records":[{{"headers":{{{headers}}}}}],"records":[{{"headers":{{{headers}}}}}]}}'
    body += " " * MIB

    found = decode_produce(body.encode(), JSON, now_ms=1, limits=limits)

    assert len(found.batch.column("headers")[0]) == 100


@pytest.mark.parametrize(
    "body", [b"[" * 2 * MIB, b'{"records":[{' + b":" * 2 * MIB, b"{" * 2 * MIB]
)
def test_invalid_json_is_left_to_the_decoder(body: bytes) -> None:
    check_shape(body, RecordLimits(record_count_max=1))
    check_shape(body, RecordLimits(record_count_max=1), is_lines=True)
