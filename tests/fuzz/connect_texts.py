"""Decoders of Connect's texts: URLs, numbers, dates, replies, and files of `riacho connect`."""

import os
from collections.abc import Callable
from typing import Any, cast

import typer
from hypothesis import strategies as st

from riacho.cli.connect import files, states
from service.connect.connectors.file_stream.ledger import LEDGER_BYTES_MAX, LineFile
from service.connect.connectors.guarded_files import HeldFolder
from service.connect.connectors.http import source
from service.connect.connectors.http.urls import parsed_url
from service.connect.connectors.jdbc.urls import parse_url
from service.connect.data.errors import DataFault, TaskFault
from service.connect.data.schema import Type
from service.connect.transforms.casting.cast import caster
from service.connect.transforms.times.patterns import DatePattern
from tests.fuzz.decoder import STRUCTS, Decoder
from tests.fuzz.received import NESTED

PATTERNS = [
    DatePattern("yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
    DatePattern("yyyyMMddHHmmss"),
    DatePattern("EEE, d MMM yy K:mm a Z"),
]


class OneFile:
    """A folder with one file, which has these bytes."""

    path = "out.txt"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, flags: int, *, suffix: str = "") -> int:
        del flags, suffix
        file = os.memfd_create("ledger")
        os.write(file, self._data)
        os.lseek(file, 0, os.SEEK_SET)
        return file


def _ledger(data: bytes) -> Any:
    return LineFile._load(cast(LineFile, None), cast(HeldFolder, OneFile(data)))


def _of_text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode(errors="replace"))


def _dates(text: str) -> list[Any]:
    found: list[Any] = []
    for pattern in PATTERNS:
        try:
            found.append(pattern.parse(text))
        except DataFault as fault:
            found.append(str(fault))
    return found


ALL = [
    Decoder(
        covers=(
            "service.connect.connectors.jdbc.urls.parse_url",
            "service.connect.connectors.jdbc.urls._options",
        ),
        decode=_of_text(parse_url),
        valid=st.sampled_from(
            [
                b"jdbc:sqlite:orders.db",
                b"sqlite:///orders.db",
                b"jdbc:postgresql://db:5432/shop?sslmode=require&currentSchema=s",
                b"jdbc:mariadb://[::1]:3306/shop?useSSL=true",
            ]
        ),
        errors=(ValueError,),
        factor=500,
        why="pairs of texts",
    ),
    Decoder(
        covers=("service.connect.connectors.http.urls.parsed_url",),
        decode=_of_text(parsed_url),
        valid=st.sampled_from([b"https://example.com/a?b=c", b"http://[::1]:80/%20#x"]),
        errors=(TaskFault,),
        factor=500,
        why="a URL and its parts, each with its escapes",
    ),
    Decoder(
        covers=("service.connect.connectors.http.source._list",),
        decode=lambda data: source._list(("items",), data),
        valid=st.sampled_from([b'{"items": [1, {"a": null}]}', b'{"items": null}']),
        hard=NESTED,
        errors=(TaskFault,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.connect.connectors.file_stream.ledger.LineFile._load",),
        decode=_ledger,
        valid=st.sampled_from(
            [
                b'{"length": 12, "writers": {"s": {"owner": "a", "next": [["t", 0, 17]]}},'
                b' "pending": {"writer": "s", "size": 3, "crc": 1, "next": []}}',
                b"{}",
            ]
        ),
        hard=NESTED,
        errors=(TaskFault,),
        factor=250,
        limit_bytes=LEDGER_BYTES_MAX,
        why=STRUCTS,
    ),
    Decoder(
        covers=(
            "service.connect.transforms.casting.cast._parsed_float",
            "service.connect.transforms.casting.numbers.as_float32",
        ),
        decode=_of_text(caster(Type.FLOAT32, None)),
        valid=st.sampled_from([b"1.5", b"-1e400", b"0x1p3", b" NaN", b"3f", b".5D"]),
        errors=(DataFault,),
        factor=100,
        why="a number, and the text in a message",
    ),
    Decoder(
        covers=("service.connect.transforms.times.patterns.DatePattern.parse",),
        decode=_of_text(_dates),
        valid=st.sampled_from(
            [b"2026-11-19T23:00:01.5Z", b"20261119230001", b"Thu, 19 Nov 26 11:00 PM +0100"]
        ),
        factor=250,
        why="the text in each of the messages",
    ),
    Decoder(
        covers=("riacho.cli.connect.files._parsed",),
        decode=_of_text(lambda text: files._parsed(text, "orders.json")),
        valid=st.sampled_from(
            [b'{"name": "c", "config": {"a": 1, "b": true, "c": null}}', b'{"a": "b"}', b"a=1\n"]
        ),
        hard=NESTED,
        errors=(typer.BadParameter,),
        factor=500,
        why="a byte may be an item of a list",
    ),
    Decoder(
        covers=("riacho.cli.connect.states._parsed",),
        decode=_of_text(states._parsed),
        valid=st.sampled_from(
            [b'[{"partition": {"filename": "a"}, "offset": null}]', b'{"offsets": []}']
        ),
        hard=NESTED,
        errors=(typer.BadParameter,),
        factor=500,
        why="a byte may be an item of a list",
    ),
]
