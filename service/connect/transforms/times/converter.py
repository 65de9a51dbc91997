"""TimestampConverter: times as text, numbers, dates, times of the day or timestamps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.logical import timestamp_from_ms, timestamp_to_ms
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import (
    DATE,
    DATE_SCHEMA,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    UNSET,
    ConnectSchema,
    Type,
    default_of,
)
from service.connect.transforms.kinds import (
    WITH_DEFAULTS,
    TransformKind,
    exactly,
    key_and_value,
)
from service.connect.transforms.sides import (
    BySchema,
    Side,
    not_a_map,
    not_a_struct,
    struct_like,
)
from service.connect.transforms.times.patterns import DatePattern

_PURPOSE: Final = "converting timestamp formats"
_LONG_END: Final = 1 << 63
_PER_MS: Final[Mapping[str, int]] = {"microseconds": 1000, "nanoseconds": 1_000_000}
_SCHEMAS: Final[Mapping[str, ConnectSchema]] = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_LOGICAL: Final[Mapping[str, str]] = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}
_PYTHON: Final[Mapping[str, type]] = {
    "string": str,
    "unix": int,
    "Date": date,
    "Time": time,
    "Timestamp": datetime,
}

_Convert = Callable[[Any], Any]


class _Conversion:
    """From each form of a time to the one that was chosen."""

    def __init__(self, target: str, pattern: DatePattern | None, precision: str) -> None:
        self._pattern = pattern
        self._precision = precision
        self.schema = _SCHEMAS[target]
        self._write: _Convert = {
            "string": self._text,
            "unix": self._unix,
            "Date": lambda when: when.date(),
            "Time": lambda when: when.time(),
            "Timestamp": lambda when: when,
        }[target]
        self._readers: Mapping[str, _Convert] = {
            "string": self._from_text,
            "unix": self._from_unix,
            "Date": lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC),
            "Time": lambda clock: datetime.combine(date(1970, 1, 1), clock, UTC),
            "Timestamp": lambda when: when,
        }

    def of(self, form: str) -> _Convert:
        """Return what converts times in a form; null remains."""
        read, write, python = self._readers[form], self._write, _PYTHON[form]

        def convert(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not python:
                raise DataFault(
                    f"Expected {form} timestamp to be a {python.__name__}, "
                    f"but found {type(value).__name__}"
                )
            return write(read(value))

        return convert

    def _text(self, when: datetime) -> str:
        assert self._pattern is not None
        return self._pattern.format(when)

    def _from_text(self, text: str) -> datetime:
        if self._pattern is None:
            raise DataFault("`format` is needed to read a timestamp from text")
        return self._pattern.parse(text)

    def _unix(self, when: datetime) -> int:
        ms = timestamp_to_ms(when)
        if self._precision == "seconds":
            return _divided(ms, 1000)
        number = ms * _PER_MS.get(self._precision, 1)
        return max(-_LONG_END, min(number, _LONG_END - 1))

    def _from_unix(self, number: int) -> datetime:
        if self._precision == "seconds":
            return timestamp_from_ms(number * 1000)
        return timestamp_from_ms(_divided(number, _PER_MS.get(self._precision, 1)))


def _divided(number: int, by: int) -> int:
    """Return a quotient rounded towards 0, as Java does."""
    return number // by if number >= 0 else -(-number // by)


def form_of(schema: ConnectSchema) -> str:
    """Return the form that times of a schema have."""
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None:
        return logical
    if schema.type is Type.STRING:
        return "string"
    if schema.type is Type.INT64:
        return "unix"
    raise DataFault(
        f"Schema {schema.type.name} does not correspond to a known timestamp type format"
    )


class _TimestampConverter:
    def __init__(self, side: Side, values: Values) -> None:
        self._side = side
        self._field: str = values["field"]
        self._with_defaults = values["replace.null.with.default"]
        self._conversion = _Conversion(
            values["target.type"], _pattern(values), values["unix.precision"]
        )
        self._plain = {python: self._conversion.of(form) for form, python in _PYTHON.items()}
        self._wholes = BySchema(self._whole)
        self._structs = BySchema(self._struct)

    def __call__(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self._side.read(record)
        if schema is None:
            return self._side.replaced(record, None, self._without_schema(value))
        if not self._field:
            updated, convert = self._wholes[schema]
            return self._side.replaced(record, updated, convert(value))
        if schema.type is not Type.STRUCT or (value is not None and type(value) is not dict):
            raise not_a_struct(value, _PURPOSE)
        updated, change = self._structs[schema]
        return self._side.replaced(record, updated, None if value is None else change(value))

    def _without_schema(self, value: Any) -> Any:
        if value is None or not self._field:
            return self._converted(value)
        if type(value) is not dict:
            raise not_a_map(value, _PURPOSE)
        return {**value, self._field: self._converted(value.get(self._field))}

    def _converted(self, value: Any) -> Any:
        if value is None:
            return None
        convert = self._plain.get(type(value))
        if convert is None:
            raise DataFault(
                f"TimestampConverter does not support {type(value).__name__} objects as timestamps"
            )
        return convert(value)

    def _whole(self, schema: ConnectSchema) -> tuple[ConnectSchema, _Convert]:
        updated = replace(self._conversion.schema, is_optional=schema.is_optional)
        return updated, self._conversion.of(form_of(schema))

    def _struct(self, schema: ConnectSchema) -> tuple[ConnectSchema, _Convert]:
        fields, plan = [], []
        for field in schema.fields:
            of, convert = field.schema, None
            default = default_of(of) if self._with_defaults else None
            if field.name == self._field:
                of, convert = self._whole(of)
            fields.append((field.name, of))
            plan.append((field.name, default, convert))

        def change(value: dict[str, Any]) -> dict[str, Any]:
            made = {}
            for name, default, convert in plan:
                each = value.get(name)
                if each is None:
                    each = default
                made[name] = each if convert is None else convert(each)
            return made

        whole = default_of(schema)
        updated = replace(
            struct_like(schema, fields),
            is_optional=schema.is_optional,
            default=UNSET if whole is None else change(whole),
        )
        return updated, change


def _pattern(values: Values) -> DatePattern | None:
    text: str = values["format"]
    if not text.strip():
        if values["target.type"] != "string":
            return None
        wrong = (
            "TimestampConverter requires format option to be specified when using string timestamps"
        )
        raise ConfigFault({"format": wrong})
    try:
        return DatePattern(text)
    except ValueError as error:
        raise ConfigFault({"format": f"{text!r} {error}"}) from None


TIMESTAMP_CONVERTER: Final[Sequence[TransformKind]] = key_and_value(
    "TimestampConverter",
    "Converts times between text, numbers and the types of dates.",
    (
        Key(
            name="field",
            type=KeyType.STRING,
            default="",
            importance=Importance.HIGH,
            about="The field with the time; empty: everything is the time.",
        ),
        Key(
            name="target.type",
            type=KeyType.STRING,
            importance=Importance.HIGH,
            about="The form that the time gets.",
            choices=tuple(_SCHEMAS),
            check=exactly(*_SCHEMAS),
        ),
        Key(
            name="format",
            type=KeyType.STRING,
            default="",
            about="The pattern of text, as Java's `SimpleDateFormat` has it.",
        ),
        Key(
            name="unix.precision",
            type=KeyType.STRING,
            default="milliseconds",
            importance=Importance.LOW,
            about="What numbers count. Times here have milliseconds, so finer ones are cut.",
            choices=("nanoseconds", "microseconds", "milliseconds", "seconds"),
            check=exactly("nanoseconds", "microseconds", "milliseconds", "seconds"),
        ),
        WITH_DEFAULTS,
    ),
    _TimestampConverter,
)
