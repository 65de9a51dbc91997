"""Decoders of the answers that a client gets, and of files that users write for it."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from riacho import errors
from riacho.cli.records.formats import parse_origin, parse_time_ms
from riacho.http import wire
from riacho.http.gateway import Reply
from riacho.http.replies import parsed
from riacho.records import Record
from riacho.spark.options import Options
from riacho.spark.read import log as spark_log
from riacho.spark.read.columns import SourceColumns
from riacho.spark.read.ranges import StoredRange
from riacho.spark.sql.schema import objects
from riacho.spark.write.options import parse_batch, parse_stream
from service.http.bodies.json_fetch import json_pieces
from storage.errors import InvalidConfig, OutcomeUnknown
from storage.formats.records import RECORD_SCHEMA
from storage.formats.slices import SCHEMA_MESSAGE
from tests.fuzz.decoder import CHECKSUM, Decoder, with_checksum
from tests.fuzz.received import NESTED
from tests.fuzz.stored import SLICES_OF_THREE, THREE
from tests.riacho.http.test_wire import arrow_reply

TRUSTED = "a client reads what its own gateway says, which could as well send so many records"
TREE = "two bytes of JSON may be a list in a list"

ARROW_REPLIES = st.lists(
    st.tuples(st.integers(0, 1000), st.lists(st.binary(max_size=20), min_size=1, max_size=3)),
    max_size=3,
).map(lambda batches: arrow_reply(*batches))
JSON_REPLIES = st.just(b"".join(json_pieces([(range(3), THREE)])))
PROBLEMS = st.just(json.dumps({"code": "X", "detail": "y", "retryable": False}).encode())


def _json_records(body: bytes) -> Any:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return wire.decode_json("t", 0, found)


def _slices(data: bytes) -> Any:
    crc, stored = int.from_bytes(data[:4]), data[4:]
    spot = StoredRange(
        base_offset=0,
        end_offset=3,
        count=3,
        format="arrow",
        url="",
        start=0,
        end=len(stored),
        crc32c=crc,
        min_timestamp=0,
        max_timestamp=2,
    )
    columns = SourceColumns(RECORD_SCHEMA, "t", 0, 0)
    return [piece.rows for piece in columns.decode_slices([spot], SCHEMA_MESSAGE + stored)]


class Shape(msgspec.Struct):
    topics: list[str]


REPLIES = [
    Decoder(
        covers=("riacho.http.wire.decode_arrow", "riacho.http.wire._decode_arrow"),
        decode=lambda body: wire.decode_arrow("t", 0, body, 0),
        valid=ARROW_REPLIES,
        believes=TRUSTED,
        factor=60,
        why="each record is an object with seven fields",
    ),
    Decoder(
        covers=("riacho.spark.read.log._decoded",),
        decode=spark_log._decoded,
        valid=ARROW_REPLIES,
        errors=wire.UNREADABLE,
        believes=TRUSTED,
        factor=60,
        why="columns are views of the input",
    ),
    Decoder(
        covers=(
            "riacho.http.wire.decode_json",
            "riacho.http.wire._decode_json",
            "riacho.http.wire._payload",
        ),
        decode=_json_records,
        valid=JSON_REPLIES,
        hard=NESTED,
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=("riacho.spark.read.columns.SourceColumns.decode_slices",),
        decode=_slices,
        valid=SLICES_OF_THREE.map(with_checksum),
        envelope=CHECKSUM,
        believes=TRUSTED,
        factor=60,
        why="columns are views of the input, or were inflated from it",
    ),
    Decoder(
        covers=("riacho.http.gateway.Reply.json",),
        decode=lambda body: Reply(200, {}, body).json(),
        valid=JSON_REPLIES,
        hard=NESTED,
        errors=(OutcomeUnknown,),
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=("riacho.http.replies.parsed",),
        decode=lambda body: parsed(Reply(200, {}, body), Shape),
        valid=st.just(b'{"topics":["a","b"]}'),
        hard=NESTED,
        errors=(OutcomeUnknown,),
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=("riacho.errors._document",),
        decode=lambda body: errors._document({"content-type": "application/problem+json"}, body),
        valid=PROBLEMS,
        hard=NESTED,
        errors=(),
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=("riacho.spark.sql.schema.objects",),
        decode=lambda value: objects([value]),
        valid=PROBLEMS,
        hard=NESTED,
        errors=(),
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=("riacho.records.Record.json",),
        decode=lambda value: Record("t", 0, 0, 0, None, value).json(),
        valid=PROBLEMS,
        hard=NESTED,
        errors=(ValueError, RecursionError),
        factor=250,
        why=TREE,
    ),
]


def _words(name: str, error: type[Exception], decode: Callable[[str], Any], *good: str) -> Decoder:
    return Decoder(
        covers=(name,),
        decode=lambda data: decode(data.decode(errors="replace")),
        valid=st.sampled_from(good).map(str.encode),
        errors=(error,),
        factor=64,
        why="the text, its parts, and all of it in the message",
    )


def _given(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.split("\n"))
    return {name: value for name, _, value in pairs}


WORDS = [
    _words(
        "riacho.cli.records.formats.parse_origin",
        ValueError,
        parse_origin,
        "end",
        "-5",
        "@2026-01-01",
    ),
    _words(
        "riacho.cli.records.formats.parse_time_ms",
        ValueError,
        parse_time_ms,
        "17",
        "2026-01-01T00Z",
    ),
    _words(
        "riacho.spark.write.options.parse_batch",
        InvalidConfig,
        lambda text: parse_batch(_given(text)),
        "url=http://a\ntopic=t\nqueryId=q\nbatchId=7",
        "url=http://a\ntopic=t\natomic=task\ndeliveryTimeoutMs=7",
    ),
    _words(
        "riacho.spark.write.options.parse_stream",
        InvalidConfig,
        lambda text: parse_stream(_given(text)),
        "url=http://a\ntopic=t\ncheckpointLocation=/a",
    ),
    _words(
        "riacho.spark.options.Options.json",
        InvalidConfig,
        lambda text: Options({"o": text}, ["o"]).json("o", "[1]"),
        '{"a": [0, 1]}',
    ),
]

ALL = [*REPLIES, *WORDS]
