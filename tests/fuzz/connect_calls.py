"""Decoders of what Connect's calls and `riacho connect` are given."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from starlette.requests import Request

from riacho.cli.connect.files import parse_properties
from service.connect.rest import answers, bodies
from service.connect.rest.errors import ConnectError
from tests.fuzz.decoder import STRUCTS, Decoder
from tests.fuzz.received import NESTED
from tests.fuzz.values import json_of

_BODY = msgspec.json.Decoder(bodies.NewConnectorBody)


def _query(data: bytes) -> Any:
    scope = {"type": "http", "headers": [], "query_string": data}
    query = answers.ConnectQuery(Request(scope))
    return query.texts("expand"), query.flag("includeTasks")


ALL = [
    Decoder(
        covers=("service.connect.rest.answers.decode_body",),
        decode=lambda data: answers.decode_body(data, _BODY),
        valid=json_of(bodies.NewConnectorBody),
        hard=NESTED,
        errors=(ConnectError,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.connect.rest.answers.ConnectQuery.__init__",),
        decode=_query,
        valid=st.sampled_from([b"expand=status&expand=info", b"includeTasks=true&forward=false"]),
        errors=(ConnectError,),
        factor=250,
        why="pairs of texts",
    ),
    Decoder(
        covers=("riacho.cli.connect.files.parse_properties",),
        decode=lambda data: parse_properties(data.decode(errors="replace")),
        valid=st.sampled_from([b"a=1\nb : two\\\n  more\n", b"# no\nc\\=d=\\u0041\\t\n"]),
        factor=500,
        why="pairs of texts",
    ),
]
