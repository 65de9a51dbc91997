"""Error messages for JSON bodies that say where the error is.

msgspec says "Object contains unknown field `vlaue` - at `$.records[3]`". A sender reads
`records[3]: unknown field "vlaue"; a record may have key, value, ...`.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from storage.errors import InvalidRequest

_HEADER_FIELDS: Final = "a header may have key, value, value_base64"
_OFFSETS_FIELDS: Final = (
    "offsets are {group, generation, member_id, offsets: [{topic, partition, offset, metadata}]}"
)


@dataclass(frozen=True, slots=True)
class Fields:
    """Descriptions of the allowed fields, for error messages."""

    record: str
    body: str


PRODUCE_FIELDS: Final = Fields(
    "a record may have key, value, headers, timestamp, partition, key_base64, value_base64",
    'the body is {"records": [{"key": ..., "value": ...}, ...]}',
)
ATOMIC_FIELDS: Final = Fields(
    "a record has topic, and may have key, value, headers, timestamp, partition, key_base64,"
    " value_base64",
    'the body is {"records": [{"topic": ..., "key": ..., "value": ...}, ...], "offsets": {...}}',
)

_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`\Z")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`\Z")
_SHOWN_CHARS: Final = 64


def explained(
    error: msgspec.ValidationError, line: int | None = None, fields: Fields = PRODUCE_FIELDS
) -> InvalidRequest:
    """Return the error for valid JSON with a wrong structure; `line` is the line of NDJSON."""
    text = str(error)
    place = ""
    if found := _PLACE.search(text):
        place, text = found[1], text[: found.start()]
    where = ": ".join(part for part in (f"line {line}" if line else "", place) if part)
    reason = _reason(text, place, _named(place, line, fields))
    return InvalidRequest(f"{where}: {reason}" if where else reason)


def not_json(
    text: bytes, error: Exception, line: int | None = None, fields: Fields = PRODUCE_FIELDS
) -> InvalidRequest:
    """Return the error for bytes that are not JSON at all."""
    subject = f"line {line}: " if line else "the body is "
    if isinstance(error, RecursionError):
        return InvalidRequest(f"{subject}not acceptable JSON: it is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest(f"{subject}not valid UTF-8 (byte {_first_bad_byte(text)})")
    if not text.strip():
        return InvalidRequest(f"the body is empty; {fields.body}")
    reason = str(error).removeprefix("JSON is malformed: ")
    return InvalidRequest(f"{subject}not valid JSON: {reason[0].lower()}{reason[1:]}")


def _reason(text: str, place: str, fields: str) -> str:
    if found := _UNKNOWN.match(text):
        return f'unknown field "{found[1][:_SHOWN_CHARS]}"; {fields}'
    if found := _MISSING.match(text):
        return f'the field "{found[1]}" is missing; {fields}'
    if text == "Invalid base64 encoded string":
        return "not valid base64"
    return text[0].lower() + text[1:] if place else f"{text[0].lower()}{text[1:]}; {fields}"


def _named(place: str, line: int | None, fields: Fields) -> str:
    """Return the description of what is allowed at a place of the body."""
    if "headers[" in place:
        return _HEADER_FIELDS
    if place.startswith("offsets"):
        return _OFFSETS_FIELDS
    return fields.record if place or line else fields.body


def _first_bad_byte(text: bytes) -> int:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0
