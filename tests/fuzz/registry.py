"""Decoders of the schema registry: its items, its bodies, and schemas."""

from typing import Any

from hypothesis import strategies as st
from starlette.requests import Request

from service.registry import answers, bodies, items, names, served, subjects
from service.registry.errors import RegistryError
from storage.errors import Corrupt
from tests.fuzz.decoder import STRUCTS, Decoder, framed
from tests.fuzz.received import NESTED
from tests.fuzz.values import json_of


def _inflated(data: bytes) -> str:
    return items.inflated([data[:9], data[9:]])


def _query(data: bytes) -> Any:
    scope = {"type": "http", "headers": [], "query_string": data}
    query = answers.Parameters(Request(scope))
    return query.page([1, 2, 3]), query.flag("deleted"), query.text("format")


def _in_context(data: bytes) -> Any:
    path, _, query = data.partition(b"?")
    return served.in_context(path.decode(errors="replace").split("/"), query)


ITEMS = [
    framed(f"service.registry.items.{decode.__name__}", magic, kind, decode, items.encode)
    for decode, magic, kind in (
        (items.decode_schema, b"RSC1", items.StoredSchema),
        (items.decode_subject, b"RSU1", items.SubjectHead),
        (items.decode_context, b"RSX1", items.SchemaContext),
        (items.decode_id, b"RSI1", items.SchemaId),
        (items.decode_user, b"RSN1", items.SchemaUser),
    )
]

ALL = [
    *ITEMS,
    Decoder(
        covers=("service.registry.items.inflated",),
        decode=_inflated,
        valid=st.text(max_size=100).map(lambda text: b"".join(items.deflated(text))),
        errors=(Corrupt,),
        factor=64,
        limit_bytes=9 * items.TEXT_BYTES_MAX,
        why="deflated text has a limit of its own",
    ),
    Decoder(
        covers=("service.registry.answers.decode_body",),
        decode=lambda data: answers.decode_body(data, subjects.BODY),
        valid=json_of(bodies.SchemaBody),
        hard=NESTED,
        errors=(RegistryError,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.registry.answers.Parameters.__init__",),
        decode=_query,
        valid=st.sampled_from([b"deleted=true&offset=1&limit=2", b"format=serialized"]),
        errors=(RegistryError,),
        factor=250,
        why="pairs of texts",
    ),
    Decoder(
        covers=("service.registry.served.in_context",),
        decode=_in_context,
        valid=st.sampled_from([b"contexts/.a/subjects?x=1", b"contexts/a/schemas/ids/1?subject=b"]),
        factor=250,
        why="parts of a path, and pairs of texts",
    ),
    *(
        Decoder(
            covers=(f"service.registry.{name}",),
            decode=lambda data, parse=parse: parse(data.decode(errors="replace")),
            valid=st.sampled_from(good),
            errors=(RegistryError,),
            factor=64,
            why="the text, its parts, and all of it in the message",
        )
        for name, parse, good in (
            ("answers.parse_version", answers.parse_version, [b"1", b"latest"]),
            ("answers.parse_id", answers.parse_id, [b"1", b"-7"]),
            ("names.parse_subject", names.parse_subject, [b"a", b":.c:a"]),
        )
    ),
]
