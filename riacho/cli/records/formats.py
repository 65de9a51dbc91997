r"""How `riacho consume` prints records, and how options say where to begin.

A format is text with `%` for the parts of a record, as in kcat:

    %t topic      %p partition      %o offset       %T timestamp in ms
    %k key        %v value          %h headers      %s length of the value in bytes
    %%  a percent sign              \n \t \r \0 \\  as in C

A null key or value prints as nothing, and has the length -1.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from json import dumps
from typing import Any, Final, Literal, TypeAlias

from riacho.records import Record

Piece: TypeAlias = bytes | Callable[[Record], bytes]

DEFAULT_FORMAT: Final = "%v\\n"

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN: Final = re.compile(r"%(.)|\\(.)|%$|\\$", re.DOTALL)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def _length(record: Record) -> bytes:
    return b"%d" % (-1 if record.value is None else len(record.value))


_FIELDS: Final[dict[str, Callable[[Record], bytes]]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "h": _headers,
    "s": _length,
}


def compile_format(text: str) -> Callable[[Record], bytes]:
    """Return the function that prints a record as `text` says, or raise `ValueError`."""
    pieces: list[Piece] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()].encode())
        pieces.append(_piece(match))
        end = match.end()
    pieces.append(text[end:].encode())
    wanted = [piece for piece in pieces if piece != b""]

    def render(record: Record) -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(record) for p in wanted)

    return render


def _piece(match: re.Match[str]) -> Piece:
    field, escape = match.groups()
    if field == "%":
        return b"%"
    if field in _FIELDS:
        return _FIELDS[field]
    if escape in _ESCAPES:
        return _ESCAPES[escape].encode()
    known = " ".join([*(f"%{name}" for name in _FIELDS), "%%", r"\n \t \r \0 \\"])
    raise ValueError(f"{match.group()!r} is not part of a format; known are {known}")


def render_json(record: Record) -> bytes:
    """Return the record as one line of JSON, with the gateway's names.

    What is not UTF-8 comes as `key_base64` or `value_base64`. What was decoded is JSON itself, with
    the id of its schema.
    """
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_of_record("key", record),
        **_of_record("value", record),
        "headers": [{"key": name, **_payload("value", value)} for name, value in record.headers],
    }
    return dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _of_record(name: str, record: Record) -> dict[str, Any]:
    schema = getattr(record, f"{name}_schema", None)
    if schema is None:
        return _payload(name, getattr(record, name))
    return {name: getattr(record, f"{name}_json"), f"{name}_schema_id": schema}


def _payload(name: str, payload: bytes | None) -> dict[str, str | None]:
    if payload is None:
        return {name: None}
    try:
        return {name: payload.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(payload).decode()}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to begin: at either end of the log, an offset, N records before the end, or a time."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    number: int = 0


def parse_origin(text: str) -> Origin:
    """Return where `text` says to begin, or raise `ValueError`.

    `beginning`, `end`, an offset, `-N` for the last N of each partition, or `@` and a time:
    milliseconds since 1970 or ISO 8601, which is UTC unless it says otherwise.
    """
    if text in ("beginning", "earliest", "start"):
        return Origin("beginning")
    if text in ("end", "latest"):
        return Origin("end")
    if text.startswith("@"):
        return Origin("time", parse_time_ms(text[1:]))
    try:
        number = int(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no offset; give beginning, end, N, -N, or @TIME"
            " (ms since 1970 or ISO 8601)"
        ) from None
    return Origin("last", -number) if text.startswith("-") else Origin("offset", number)


def parse_time_ms(text: str) -> int:
    """Return the time in ms that `text` says, in ms or ISO 8601, or raise `ValueError`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; give ms since 1970, or ISO 8601 like 2026-11-16T09:30:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)


def begin_offset(origin: Origin, log_start: int, end: int) -> int | None:
    """Return the offset to begin with in a log of these bounds; None if a time decides."""
    match origin.kind:
        case "beginning":
            return log_start
        case "end":
            return end
        case "offset":
            return origin.number
        case "last":
            return max(log_start, end - origin.number)
        case "time":
            return None
