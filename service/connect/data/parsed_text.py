r"""Values from text, their types found by what they look like: Kafka's `Values.parseString`.

    null, true, false             themselves
    1, 70000, 1.5, 1e40           the smallest of INT8 to INT64, FLOAT32, FLOAT64, Decimal
    2026-01-31                    a Date; 12:30:00.000Z a Time; both with T between: a Timestamp
    [1, 2], {"a": 1}              an array, a map: if all elements have a type in common
    anything else                 a string

A backslash keeps the character after it from ending a token; it remains in the value.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import numpy as np

from service.connect.data.errors import DataFault
from service.connect.data.logical import (
    EPOCH,
    date_from_days,
    time_from_ms,
    timestamp_from_ms,
    timestamp_to_ms,
)
from service.connect.data.schema import (
    BOOLEAN,
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    Type,
    decimal,
)
from service.connect.data.text import text_of

Parsed: TypeAlias = tuple[ConnectSchema | None, Any]

_TOKEN: Final = re.compile(r'[:,{}\[\]"]|(?:\\.|[^\\:,{}\[\]"]|\\$)+', re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_DATE: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
_TIME: Final = re.compile(r"(\d+):(\d+):(\d+)\.(\d+)Z", re.ASCII)
_BLANK: Final = "".join(map(chr, range(33)))
_WHOLE: Final = ((INT8, 7), (INT16, 15), (INT32, 31), (INT64, 63))
_LITERALS: Final[dict[str, Parsed]] = {
    "null": (None, None),
    "true": (BOOLEAN, True),
    "false": (BOOLEAN, False),
}
_NUMBERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_TEMPORAL: Final = frozenset({DATE, TIME, TIMESTAMP})


def parsed_text(text: str) -> Parsed:
    """Return the schema and the value of text; the schema of null is None."""
    if not text:
        return STRING, text
    parser = _Parser(text)
    try:
        return parser.top()
    except DataFault:
        return STRING, text


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: Sequence[str] = ()
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens = _TOKEN.findall(self.text)

    def top(self) -> Parsed:
        literal = _LITERALS.get(self.text.strip(_BLANK))
        if literal is not None and len(self.tokens) <= 3:
            return literal
        start = self.at
        if self._take("[") or self._take("{"):
            opened = self.tokens[self.at - 1].strip(_BLANK)
            try:
                return self._array() if opened == "[" else self._map()
            except DataFault:
                self.at = start
        scalar = self._scalar()
        return (STRING, self.text) if scalar is None else scalar

    def _take(self, expected: str) -> bool:
        """Consume the token if it comes next, perhaps after blanks."""
        at = self.at
        while at < len(self.tokens) - 1 and not self.tokens[at].strip(_BLANK):
            at += 1
        if at >= len(self.tokens) or self.tokens[at].strip(_BLANK) != expected:
            return False
        self.at = at + 1
        return True

    def _value(self) -> Parsed:
        """Return a value inside an array or a map."""
        if self._take('"'):
            return self._quoted()
        for word, literal in _LITERALS.items():
            if self._take(word):
                return literal
        if self._take("["):
            return self._array()
        if self._take("{"):
            return self._map()
        scalar = self._scalar()
        if scalar is None:
            raise DataFault("Failed to parse embedded value")
        return scalar

    def _quoted(self) -> Parsed:
        parts = []
        while self.at < len(self.tokens) and not self._take('"'):
            parts.append(self.tokens[self.at])
            self.at += 1
        content = "".join(parts)
        schema, value = parsed_text(content)
        if schema is not None and schema.name in _TEMPORAL:
            return schema, value
        return STRING, content

    def _array(self) -> Parsed:
        found: list[Parsed] = []
        common: ConnectSchema | None = None
        while self.at < len(self.tokens):
            if self._take("]"):
                values = [value for _, value in found]
                if common is not None:
                    values = [_aligned(common, value) for value in values]
                return ConnectSchema(Type.ARRAY, value_schema=common), values
            if self._take(","):
                raise DataFault(f"Unable to parse an empty array element: {self.text}")
            element = self._value()
            common = _common(common, element)
            found.append(element)
            before = self.at
            if self._take("]"):
                self.at = before
            elif not self._take(","):
                raise DataFault("Array elements missing ',' delimiter")
        raise DataFault(f"Array is missing terminating ']': {self.text}")

    def _map(self) -> Parsed:
        found: list[tuple[Any, Any]] = []
        keys: ConnectSchema | None = None
        values: ConnectSchema | None = None
        while self.at < len(self.tokens):
            if self._take("}"):
                schema = ConnectSchema(Type.MAP, key_schema=keys, value_schema=values)
                return schema, {
                    _key(key if keys is None else _aligned(keys, key)): (
                        value if keys is None or values is None else _aligned(values, value)
                    )
                    for key, value in found
                }
            if self._take(","):
                raise DataFault(f"Unable to parse a map entry with no key or value: {self.text}")
            key = self._value()
            if key[1] is None:
                raise DataFault(f"Map entry may not have a null key: {self.text}")
            if not self._take(":"):
                raise DataFault(f"Map entry is missing ':' in {self.text}")
            value = self._value()
            found.append((key[1], value[1]))
            self._take(",")
            keys, values = _common(keys, key), _common(values, value)
        raise DataFault(f"Map is missing terminating '}}': {self.text}")

    def _scalar(self) -> Parsed | None:
        """Return the next token as a temporal value or a number; None: it is neither."""
        if self.at >= len(self.tokens):
            raise DataFault("Failed to parse embedded value")
        raw = self.tokens[self.at]
        self.at += 1
        token = raw.strip(_BLANK)
        if not token:
            return STRING, raw
        if token[0].isdigit():
            # The colons of a time are tokens of their own.
            more = self.tokens[self.at : self.at + 4]
            if len(more) == 4:
                found = _temporal(token + "".join(more))
                if found is not None:
                    self.at += 4
                    return found
            found = _temporal(token)
            if found is not None:
                return found
        return _number(token) if token[0].isdigit() or token[0] in "+-" else None


def _number(token: str) -> Parsed | None:
    if _NUMBER.fullmatch(token) is None:
        return None
    try:
        number = Decimal(token)
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), token
    if number.adjusted() < 20 and number == number.to_integral_value():
        whole = int(number)
        for schema, bits in _WHOLE:
            if -(1 << bits) <= whole < 1 << bits:
                return schema, whole
    if exponent != 0:
        with np.errstate(over="ignore"):
            short = float(np.float32(float(number)))
        if abs(short) != float("inf"):
            return FLOAT32, short
        if abs(float(number)) != float("inf"):
            return FLOAT64, float(number)
    return decimal(-exponent), number


def _temporal(token: str) -> Parsed | None:
    token = token.replace("\\:", ":")
    try:
        if len(token) == 13 and (found := _TIME.match(token)):
            return TIME_SCHEMA, time_from_ms(_ms_of_day(found.groups()))
        if len(token) == 10 and (found := _DATE.match(token)):
            return DATE_SCHEMA, _day(found.groups()).date()
        if len(token) == 24 and (found := _DATE.match(token)):
            rest = token[found.end() :]
            clock = _TIME.match(rest[1:]) if rest.startswith("T") else None
            if clock is None:
                return None
            ms = timestamp_to_ms(_day(found.groups())) + _ms_of_day(clock.groups())
            return TIMESTAMP_SCHEMA, timestamp_from_ms(ms)
    except (DataFault, ValueError, OverflowError):
        return None
    return None


def _day(parts: Sequence[str]) -> datetime:
    """Return a day; as in Java, month 13 is in the next year."""
    year, month, day = map(int, parts)
    years, months = divmod(month - 1, 12)
    return EPOCH.replace(year=year + years, month=months + 1) + timedelta(days=day - 1)


def _ms_of_day(parts: Sequence[str]) -> int:
    hours, minutes, seconds, ms = map(int, parts)
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms


def _common(previous: ConnectSchema | None, latest: Parsed) -> ConnectSchema | None:
    """Return the schema of both; None: they have none in common."""
    schema = latest[0]
    if schema is None or previous is None:
        return previous if schema is None else schema
    if previous.type is schema.type:
        return schema
    if previous.type in _NUMBERS and schema.type in _NUMBERS:
        wider = _NUMBERS.index(schema.type) > _NUMBERS.index(previous.type)
        return schema if wider else previous
    return None


def _aligned(schema: ConnectSchema, value: Any) -> Any:
    """Return a value as one of the schema that all elements have in common."""
    if value is None:
        raise DataFault("Unable to convert a null value to a schema that requires a value")
    if schema.type is Type.STRING:
        return text_of(None, value)
    is_number = type(value) in (int, float)
    if schema.type in (Type.FLOAT32, Type.FLOAT64) and is_number:
        return float(value)
    if schema.name == DECIMAL and is_number:
        return Decimal(repr(float(value)))
    if schema.name == DATE and is_number:
        return date_from_days(int(value))
    if schema.name == TIME and is_number:
        return time_from_ms(int(value))
    if schema.name == TIMESTAMP and is_number:
        return timestamp_from_ms(int(value))
    fits = {
        Type.BOOLEAN: bool,
        Type.ARRAY: list,
        Type.MAP: dict,
    }.get(schema.type)
    if schema.name is not None or (is_number and fits is None) or (fits and type(value) is fits):
        return value
    raise DataFault(f"Unable to convert {value} to {schema.type.name}")


def _key(value: Any) -> Any:
    if isinstance(value, list | dict):
        raise DataFault("a map whose keys are lists or maps")
    return value
