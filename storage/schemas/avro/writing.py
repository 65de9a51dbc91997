"""From JSON values to Avro's bytes: one function for each type of a schema.

Each of them appends the bytes of a value to `Out`, or raises `DoesNotFit`.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from storage.schemas.avro.logical import unscaled_bytes, whole_number
from storage.schemas.avro.types import (
    NO_DEFAULT,
    AvroArray,
    AvroField,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)
from storage.schemas.avro.unions import union_writer
from storage.schemas.codec import TOO_DEEP
from storage.schemas.refused import DoesNotFit

LEVELS_MAX: Final = 100
"""Maximum number of values inside each other of types that contain themselves."""

ATTEMPTS_MAX: Final = 1_000
"""Maximum number of times that branches of unions are tried for one value."""

_FLOATS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_INT_MAX: Final = 2**31
_LONG_MAX: Final = 2**63
_ABSENT: Final = object()


class Out(bytearray):
    """The bytes of values, and what is left for the present one."""

    __slots__ = ("attempts", "levels")
    attempts: int
    levels: int

    def begin(self) -> None:
        self.attempts = ATTEMPTS_MAX
        self.levels = LEVELS_MAX


Write = Callable[[Any, Out], None]


def writer_of(tree: AvroType) -> Write:
    return _Writers().of(tree)


def append_long(number: int, out: bytearray) -> None:
    """Append a number, zigzag and in groups of seven bits."""
    left = number << 1 if number >= 0 else ~(number << 1)
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)


class _Writers:
    def __init__(self) -> None:
        self._known: dict[int, Write] = {}
        self._open: dict[int, list[Write]] = {}
        """Records that are not complete yet: their parts may contain them again."""

    def of(self, tree: AvroType) -> Write:
        found = self._known.get(id(tree))
        if found is None and id(tree) in self._open:
            return _inside_itself(self._open[id(tree)])
        if found is None:
            found = self._known[id(tree)] = self._made(tree)
        return found

    def _made(self, tree: AvroType) -> Write:
        if isinstance(tree, AvroPrimitive):
            return _primitive(tree)
        if isinstance(tree, AvroArray):
            return _array(self.of(tree.items))
        if isinstance(tree, AvroMap):
            return _map(self.of(tree.values))
        if isinstance(tree, AvroUnion):
            return union_writer(tree, [self.of(branch) for branch in tree.branches])
        if tree.kind == "enum":
            return _enum(tree)
        if tree.kind == "fixed":
            return _fixed(tree)
        holder = self._open[id(tree)] = []
        fields = [
            (field.name, write, _default_of(field, write))
            for field in tree.fields
            for write in (self.of(field.type),)
        ]
        made = _record(tree.full_name, fields)
        holder.append(made)
        del self._open[id(tree)]
        return made


def _inside_itself(holder: list[Write]) -> Write:
    def write(value: Any, out: Out) -> None:
        if out.levels <= 0:
            raise DoesNotFit(TOO_DEEP)
        out.levels -= 1
        holder[0](value, out)
        out.levels += 1

    return write


def _primitive(tree: AvroPrimitive) -> Write:
    match tree.kind:
        case "int":
            return _whole(tree, _INT_MAX)
        case "long":
            return _whole(tree, _LONG_MAX)
        case "bytes":
            return _bytes(tree)
        case "float":
            return _floating("float", struct.Struct("<f"))
        case "double":
            return _floating("double", struct.Struct("<d"))
        case kind:
            return {"null": _null, "boolean": _boolean, "string": _string}[kind]


def _null(value: Any, _: Out) -> None:
    if value is not None:
        raise _expected("null", value)


def _boolean(value: Any, out: Out) -> None:
    if value is True:
        out.append(1)
    elif value is False:
        out.append(0)
    else:
        raise _expected("a boolean", value)


def _string(value: Any, out: Out) -> None:
    if not isinstance(value, str):
        if value.__class__.__name__ != "UUID":
            raise _expected("a string", value)
        value = str(value)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise DoesNotFit("the string has half of a surrogate pair") from None
    append_long(len(data), out)
    out += data


def _whole(tree: AvroPrimitive, bound: int) -> Write:
    kind = tree.kind
    otherwise = whole_number(kind, tree.props)

    def write(value: Any, out: Out) -> None:
        if type(value) is not int:
            value = value if isinstance(value, float) else otherwise(value)
            if value is None or (isinstance(value, float) and not value.is_integer()):
                raise DoesNotFit(f"it should be {_article(kind)}, a whole number")
            value = int(value)
        if not -bound <= value < bound:
            raise DoesNotFit(f"it is out of the range of {_article(kind)}")
        left = value << 1 if value >= 0 else ~(value << 1)
        while left > 127:
            out.append(left & 127 | 128)
            left >>= 7
        out.append(left)

    return write


def _floating(kind: str, form: struct.Struct) -> Write:
    def write(value: Any, out: Out) -> None:
        if type(value) is not float:
            if isinstance(value, str):
                value = _FLOATS.get(value, value)
            if isinstance(value, bool | str) or not isinstance(value, int | float):
                raise _expected(f"a {kind}", value)
        try:
            out += form.pack(value)
        except (OverflowError, struct.error):
            raise DoesNotFit(f"it is out of the range of a {kind}") from None

    return write


def _bytes(tree: AvroPrimitive) -> Write:
    otherwise = unscaled_bytes(tree.props)

    def write(value: Any, out: Out) -> None:
        data = _as_bytes(value, otherwise)
        append_long(len(data), out)
        out += data

    return write


def _fixed(tree: AvroNamed) -> Write:
    otherwise = unscaled_bytes(tree.props, tree.size)
    size = tree.size

    def write(value: Any, out: Out) -> None:
        data = _as_bytes(value, otherwise)
        if len(data) != size:
            raise DoesNotFit(f"it has {len(data)} bytes instead of {size}")
        out += data

    return write


def _as_bytes(value: Any, otherwise: Callable[[Any], bytes | None]) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise DoesNotFit(
                "bytes are written as a string of the characters 0 to 255, such as \\u00ff"
            ) from None
    if isinstance(value, bytes):
        return value
    data = otherwise(value)
    if data is None:
        raise _expected("bytes as a string", value)
    return data


def _enum(tree: AvroNamed) -> Write:
    numbers = {symbol: number for number, symbol in enumerate(tree.symbols)}

    def write(value: Any, out: Out) -> None:
        number = numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise DoesNotFit(f"{_shown(value)} is not a symbol of {tree.full_name:.100}")
        append_long(number, out)

    return write


def _array(write_item: Write) -> Write:
    def write(value: Any, out: Out) -> None:
        if not isinstance(value, list | tuple):
            raise _expected("an array", value)
        if value:
            append_long(len(value), out)
            index = 0
            try:
                for index, item in enumerate(value):  # noqa: B007 - told if one does not fit.
                    write_item(item, out)
            except DoesNotFit as error:
                error.parts.append(str(index))
                raise
        out.append(0)

    return write


def _map(write_value: Write) -> Write:
    def write(value: Any, out: Out) -> None:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        if value:
            append_long(len(value), out)
            name = ""
            try:
                for name, item in value.items():
                    _string(name, out)
                    write_value(item, out)
            except DoesNotFit as error:
                error.parts.append(str(name))
                raise
        out.append(0)

    return write


class _Default:
    """The bytes of a default value, once they are needed."""

    def __init__(self, value: Any, write: Write) -> None:
        self._value = value
        self._write = write
        self._data: bytes | None = None

    def data(self) -> bytes:
        if self._data is None:
            out = Out()
            out.begin()
            self._write(self._value, out)
            self._data = bytes(out)
        return self._data


def _default_of(field: AvroField, write: Write) -> _Default | None:
    return None if field.default is NO_DEFAULT else _Default(field.default, write)


def _record(name: str, fields: list[tuple[str, Write, _Default | None]]) -> Write:
    names = {field for field, _, _ in fields}

    def write(value: Any, out: Out) -> None:
        if not isinstance(value, dict):
            raise _expected(f"an object, the record {name:.100}", value)
        given = 0
        field = ""
        try:
            for field, write_field, default in fields:
                item = value.get(field, _ABSENT)
                if item is not _ABSENT:
                    given += 1
                    write_field(item, out)
                elif default is not None:
                    out += default.data()
                else:
                    raise DoesNotFit("the field is missing, and has no default")
        except DoesNotFit as error:
            error.parts.append(field)
            raise
        if given != len(value):
            unknown = next(each for each in value if each not in names)
            refused = DoesNotFit(f"the record {name:.100} has no such field")
            refused.parts.append(str(unknown))
            raise refused

    return write


def _expected(what: str, value: Any) -> DoesNotFit:
    return DoesNotFit(f"{_shown(value)} should be {what}")


def _shown(value: Any) -> str:
    """Return a value as people recognise it in a message."""
    if isinstance(value, str):
        return repr(value[:60])
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) or (isinstance(value, int) and -_LONG_MAX <= value < _LONG_MAX):
        return str(value)
    return {dict: "an object", list: "an array", int: "a number"}.get(type(value), "the value")


def _article(kind: str) -> str:
    return "an int" if kind == "int" else f"a {kind}"
