"""Decoders of what clients send: bodies, query strings, headers, names, events of functions."""

import gzip
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import zstandard
from hypothesis import strategies as st
from starlette.requests import Request

from service.groups.items import parse_group_id
from service.http.bodies.json import ProduceBody
from service.http.bodies.produce import ARROW_STREAM, JSON, NDJSON, decode_produce
from service.http.json_requests import decode_json
from service.http.requests import (
    QUERY,
    Query,
    accepted,
    parse_data_key,
    parse_event_id,
    parse_integer,
    parse_length,
    parse_partition,
    parse_place,
)
from service.http.stored_urls import parse_name, parse_range
from service.log.numbering import EPOCH, ID, SEQUENCE, TRANSACTION, parse_sender
from service.process.limits.compression import decompress
from service.process.limits.record_limits import RecordLimits
from service.routes.bodies.transactions import AtomicBody, decode_atomic
from service.routes.delete import _parse as parse_before_offset
from service.routes.table import ROUTES
from service.serverless.runs import scope_of
from service.transactions.ids import parse_transactional_id
from service.transactions.state import parse_ref
from storage.errors import Rejected
from storage.topics.config import SETTINGS, parse_config
from storage.topics.items import parse_topic_name
from tests.fuzz.decoder import Decoder
from tests.fuzz.values import json_of
from tests.service.http.test_arrow_bodies import HEADER_KINDS, KINDS, array_of, headers_of, stream
from tests.service.http.test_json_bodies import VALUES
from tests.storage.helpers.logs import ROWS, batch_of_rows

REQUEST_BYTES_MAX = 256 * 1024
LIMITS = RecordLimits(request_bytes_max=REQUEST_BYTES_MAX)
NOW_MS = 1_700_000_000_000

RECORDS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": VALUES,
            "value": VALUES,
            "headers": st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
            "timestamp": st.none() | st.integers(0, 2**50),
            "partition": st.none() | st.integers(0, 9),
        },
    ),
    min_size=1,
    max_size=3,
)
NESTED = st.builds(
    lambda start, depth: start + b"[" * depth,
    st.sampled_from([b"", b'{"records":[{"value":', b'{"value":', b'{"offsets":']),
    st.sampled_from([100, 2000, 100_000]),
)
"""Nested lists: a recursive decoder runs out of stack."""

JSON_BODIES = RECORDS.map(lambda records: msgspec.json.encode({"records": records}))

NDJSON_BODIES = RECORDS.map(lambda records: msgspec.json.Encoder().encode_lines(records))
ATOMIC_BODIES = RECORDS.map(
    lambda records: msgspec.json.encode({"records": [{"topic": "t", **one} for one in records]})
)
ROWS_IN_TIME = ROWS.map(lambda rows: [(abs(stamp) // 2, *rest) for stamp, *rest in rows])
ARROW_BODIES = st.builds(
    lambda batch, codec: stream(batch, compression=codec),
    ROWS_IN_TIME.map(batch_of_rows)
    | st.builds(
        lambda kind, headers: pa.record_batch(
            {"value": array_of(kind), "headers": headers_of(headers)}
        ),
        st.sampled_from(KINDS),
        st.sampled_from(HEADER_KINDS),
    ),
    st.sampled_from([None, "lz4", "zstd"]),
)


def _of_type(media_type: str) -> Callable[[bytes], Any]:
    return lambda body: decode_produce(body, media_type, now_ms=NOW_MS, limits=LIMITS)


PRODUCE = [
    Decoder(
        covers=(
            "service.http.bodies.json.decode_json",
            "service.http.bodies.json._common_records",
            "service.http.bodies.json._raw_body",
            "service.http.bodies.json.decoded_records",
            "service.http.bodies.json._decoded_plain",
            "service.http.bodies.json._stored",
            "service.http.bodies.produce.decode_produce",
        ),
        decode=_of_type(JSON),
        valid=JSON_BODIES,
        hard=NESTED,
        errors=(Rejected,),
        factor=250,
        why="two bytes may be a record: a struct with seven fields, and a row",
    ),
    Decoder(
        covers=("service.http.bodies.json.decode_ndjson", "service.http.bodies.json._raw_lines"),
        decode=_of_type(NDJSON),
        valid=NDJSON_BODIES,
        hard=NESTED,
        errors=(Rejected,),
        factor=250,
        why="three bytes may be a record: a struct with seven fields, and a row",
    ),
    Decoder(
        covers=(
            "service.http.bodies.arrow.decode_arrow",
            "service.http.bodies.arrow._validated",
            "service.http.bodies.arrow_messages._codec",
            "service.http.bodies.arrow_messages._declared",
            "service.http.bodies.arrow_messages._unpacked_bytes",
            "service.http.bodies.arrow_messages._spans",
            "service.http.bodies.arrow_messages._table",
            "service.http.bodies.arrow_messages._field",
        ),
        decode=_of_type(ARROW_STREAM),
        valid=ARROW_BODIES,
        errors=(Rejected,),
        factor=60,
        limit_bytes=4 * REQUEST_BYTES_MAX,
        why="what is compressed or named often by a dictionary may grow to the limit, in each of"
        " two columns, as it is sent and as it is stored",
    ),
    Decoder(
        covers=(
            "service.routes.bodies.transactions.decode_atomic",
            "service.routes.bodies.transactions._decode",
        ),
        decode=lambda body: decode_atomic(body, now_ms=NOW_MS, limits=LIMITS),
        valid=ATOMIC_BODIES,
        hard=NESTED,
        errors=(Rejected,),
        factor=250,
        why="a few bytes may be a record: a struct with eight fields, and a row",
    ),
]


def _compressed(encoding: str, compress: Callable[[bytes], bytes]) -> Decoder:
    plain = st.binary(max_size=300) | st.integers(0, REQUEST_BYTES_MAX).map(bytes)
    return Decoder(
        covers=(f"service.process.limits.compression.decompress ({encoding})",),
        decode=lambda body: decompress(body, encoding, REQUEST_BYTES_MAX),
        valid=plain.map(compress),
        hard=st.sampled_from([REQUEST_BYTES_MAX + 1, 64 * 1024 * 1024]).map(bytes).map(compress),
        errors=(Rejected,),
        factor=4,
        limit_bytes=3 * REQUEST_BYTES_MAX + 1024 * 1024,
        why="the documented limit, in pieces and joined; and the windows of the codec",
    )


def _utf8(decode: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of text that comes in a path or a body."""
    return lambda data: decode(data.decode(errors="replace"))


def _latin1(decode: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of text that comes in a header."""
    return lambda data: decode(data.decode("latin-1"))


def _text(
    name: str,
    decode: Callable[[bytes], Any],
    *examples: str,
    errors: tuple[type[Exception], ...] = (Rejected,),
) -> Decoder:
    return Decoder(
        covers=(name,),
        decode=decode,
        valid=st.sampled_from(examples).map(str.encode),
        errors=errors,
        factor=64,
        why="the text, its parts, and all of it in the message",
    )


def _query(data: bytes) -> Any:
    known = ["offset", "at", "max_bytes", "value_format", "offsets"]
    query = Query(Request({"type": "http", "headers": [], "query_string": data, QUERY: known}))
    return (
        query.position(),
        query.up_to("max_bytes", 1, 100),
        query.value_format(),
        query.offsets_form(),
    )


def _headers(data: bytes) -> Mapping[str, str]:
    lines = data.decode("latin-1").split("\n")
    return dict(zip((ID, EPOCH, SEQUENCE, TRANSACTION), lines, strict=False))


TEXTS = [
    _text(
        "service.http.requests._pairs",
        _query,
        "offset=7&max_bytes=100",
        "at=earliest&value_format=json&offsets=either",
        "at=1700000000000",
        "offset=%37",
    ),
    _text(
        "service.http.requests.parse_integer", _utf8(lambda t: parse_integer("n", t)), "7", "-12"
    ),
    _text("service.http.requests.parse_place", _utf8(parse_place), "earliest", "latest", "170000"),
    _text("service.http.requests.parse_data_key", _utf8(parse_data_key), "1", "99999999"),
    _text("service.http.requests.parse_partition", _utf8(parse_partition), "0", "2147483647"),
    _text(
        "service.http.requests.parse_event_id", _latin1(parse_event_id), "0", "999999999999999999"
    ),
    _text("service.http.stored_urls.parse_name", _utf8(parse_name), "0-00", "12-ab34"),
    _text(
        "service.http.stored_urls.parse_range",
        _latin1(lambda t: parse_range(t, 100)),
        "bytes=0-9",
        "bytes=7-",
        "bytes=-5",
    ),
    _text("service.http.requests.parse_length", _latin1(parse_length), "0", "12345"),
    _text(
        "service.http.requests.accepted",
        _latin1(lambda t: accepted({"accept": t}, [JSON, NDJSON])),
        "application/json;q=0.5, application/x-ndjson",
        "*/*",
    ),
    _text("service.routes.delete._parse", _utf8(parse_before_offset), "latest", "-1", "12"),
    _text(
        "service.log.numbering.parse_sender",
        lambda data: parse_sender(_headers(data)),
        "4012\n0\n17",
        "4012\n0\n0=17,2=4\ncopier.4013.6",
    ),
    _text("service.log.numbering._parse", lambda data: parse_sender(_headers(data)), "1\n2\n3"),
    _text("service.transactions.state.parse_ref", _utf8(parse_ref), "copier.4013.6", "a.b.1.0"),
    _text("service.transactions.ids.parse_transactional_id", _utf8(parse_transactional_id), "a-b"),
    _text("service.groups.items.parse_group_id", _utf8(parse_group_id), "g", "a.b_c-d"),
    _text("storage.topics.items.parse_topic_name", _utf8(parse_topic_name), "t", "a.b_c-d"),
    *(
        _text(
            f"storage.topics.config.parse_config ({name})",
            _utf8(lambda text, name=name: parse_config({name: text})),
            setting.default,
        )
        for name, setting in SETTINGS.items()
    ),
]


def _json(name: str, kind: Any) -> Decoder:
    decoder = msgspec.json.Decoder(kind)
    return Decoder(
        covers=(f"service.http.json_requests.decode_json ({name})",),
        decode=lambda body: decode_json(body, decoder),
        valid=json_of(kind),
        hard=NESTED,
        errors=(Rejected,),
        encode=msgspec.json.encode,
        factor=250,
        why="a few bytes may be a struct in a list",
    )


def _scope(data: bytes) -> Any:
    try:
        event = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    # Lambda passes only objects on.
    return scope_of(event) if isinstance(event, dict) else None


BODIES = [
    *(
        _json(f"{route.method} {route.path}", route.body.type)
        for route in ROUTES
        if route.body is not None and route.body.type not in {ProduceBody, AtomicBody}
    ),
    Decoder(
        covers=("service.serverless.runs.scope_of",),
        decode=_scope,
        valid=st.sampled_from([b'{"job":"compact","topics":["a"]}', b'{"job":"maintain"}', b"{}"]),
        errors=(Rejected,),
        factor=250,
        why="a few bytes may be an object in a list",
    ),
]

ALL = [
    *PRODUCE,
    _compressed("gzip", gzip.compress),
    _compressed("zstd", zstandard.ZstdCompressor().compress),
    *TEXTS,
    *BODIES,
]
