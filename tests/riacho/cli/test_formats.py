"""Format strings and offsets as people type them."""

import json

import pytest

from riacho.cli.records.formats import (
    DEFAULT_FORMAT,
    Origin,
    begin_offset,
    compile_format,
    parse_origin,
    render_json,
)
from riacho.records import Record

RECORD = Record("orders", 2, 7, 1_700_000_000_000, b"k", b"value", (("a", b"1"), ("b", None)))
NULLS = Record("orders", 0, 0, 0, None, None)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (DEFAULT_FORMAT, b"value\n"),
        ("%t %p %o %k %v\\n", b"orders 2 7 k value\n"),
        ("%T\\t%s", b"1700000000000\t5"),
        ("[%h]", b"[a=1,b=]"),
        ("100%%\\\\", b"100%\\"),
        ("", b""),
        ("é%k", "ék".encode()),
    ],
)
def test_a_format_prints_the_parts_of_a_record(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_nulls_print_as_nothing_and_have_no_length() -> None:
    assert compile_format("%k|%v|%s|%h")(NULLS) == b"||-1|"


@pytest.mark.parametrize("text", ["%x", "%", "\\", "\\q", "ab%"])
def test_a_wrong_format_is_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"known are %t"):
        compile_format(text)


def test_json_keeps_every_byte() -> None:
    record = Record("t", 0, 1, 2, "ö".encode(), b"\xff", (("h", b"\xfe"), ("n", None)))

    line = json.loads(render_json(record))

    assert line == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestamp": 2,
        "key": "ö",
        "value_base64": "/w==",
        "headers": [{"key": "h", "value_base64": "/g=="}, {"key": "n", "value": None}],
    }


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("beginning", Origin("beginning")),
        ("end", Origin("end")),
        ("0", Origin("offset", 0)),
        ("42", Origin("offset", 42)),
        ("-5", Origin("last", 5)),
        ("@1700000000000", Origin("time", 1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Origin("time", 1_700_000_000_000)),
        ("@2023-11-14T22:13:20", Origin("time", 1_700_000_000_000)),
        ("@2023-11-14T23:13:20+01:00", Origin("time", 1_700_000_000_000)),
    ],
)
def test_origins(text: str, origin: Origin) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize("text", ["", "x", "1.5", "@", "@yesterday", "--5"])
def test_a_wrong_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give"):
        parse_origin(text)


@pytest.mark.parametrize(
    ("origin", "offset"),
    [
        (Origin("beginning"), 10),
        (Origin("end"), 50),
        (Origin("offset", 7), 7),
        (Origin("last", 5), 45),
        (Origin("last", 1000), 10),
        (Origin("last", 0), 50),
        (Origin("time", 1), None),
    ],
)
def test_where_to_begin_in_a_log_from_10_to_50(origin: Origin, offset: int | None) -> None:
    assert begin_offset(origin, 10, 50) == offset
