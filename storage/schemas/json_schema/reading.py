"""JSON text to values and back, with every number as it was written.

`1.0`, `1e400` and integers of any length stay what they are: a `Number` knows its own text, and
compares by its exact value. Text that is too deep, or holds too many values, is refused before
anything is made of it.
"""

import decimal
import json
from collections.abc import Hashable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn, TypeAlias

from storage.schemas.source import InvalidSchema

DEPTH_MAX: Final = 100
"""Arrays and objects within each other. The library that validates data takes 128."""

VALUES_MAX: Final = 50_000
"""Objects, arrays, strings, numbers; each takes some 20 bytes of a schema that people wrote."""


class Number(decimal.Decimal):
    """A number of JSON: exact, and still as it was written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Number":
        try:
            number = super().__new__(cls, text)
        except decimal.InvalidOperation:
            raise InvalidSchema(
                f"the number {text[:40]} has an exponent that is too large"
            ) from None
        number.text = text
        return number


Value: TypeAlias = dict[str, Any] | list[Any] | str | Number | bool | None


def read(text: str) -> Value:
    """Return the value of `text`, or raise `InvalidSchema`."""
    number = lru_cache(maxsize=1024)(Number)
    try:
        value = json.loads(
            text, parse_int=number, parse_float=number, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise InvalidSchema(
            f"the schema is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    _check_size(value)
    return value  # type: ignore[no-any-return]


def write(value: Value, *, in_order: bool = False) -> str:
    """Return `value` as JSON without white space; `in_order` sorts the keys of all objects.

    The order of keys is that of their UTF-16 code units, as Java's is.
    """
    parts: list[str] = []
    _write(value, parts, in_order)
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("a string of the schema has half of a surrogate pair") from None
    return text


def key_of(value: Value) -> Hashable:
    """Return what is equal for equal values of JSON: 1 is 1.0, and neither is `true`."""
    match value:
        case bool() | None:
            return ("constant", value)
        case dict():
            return ("object", frozenset((name, key_of(item)) for name, item in value.items()))
        case list():
            return ("array", tuple(key_of(item) for item in value))
        case _:
            return value


def _write(value: Value, parts: list[str], in_order: bool) -> None:
    match value:
        case str():
            parts.append(encode_basestring(value))
        case Number():
            parts.append(value.text)
        case dict():
            separator = "{"
            for key in sorted(value, key=_utf16) if in_order else value:
                parts += (separator, encode_basestring(key), ":")
                _write(value[key], parts, in_order)
                separator = ","
            parts.append("}" if value else "{}")
        case list():
            separator = "["
            for item in value:
                parts.append(separator)
                _write(item, parts, in_order)
                separator = ","
            parts.append("]" if value else "[]")
        case _:
            parts.append("null" if value is None else "true" if value else "false")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _check_size(value: Value) -> None:
    level: list[Value] = [value]
    depth = values = 0
    while level:
        values += len(level)
        if values > VALUES_MAX:
            raise InvalidSchema(f"a schema has at most {VALUES_MAX:,} values; this one has more")
        if depth > DEPTH_MAX:
            raise _too_deep()
        depth += 1
        below: list[Value] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"a schema is nested at most {DEPTH_MAX} deep; name parts in `$defs`")


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidSchema(f"{text} is not JSON")
