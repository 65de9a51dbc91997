"""From Avro's bytes to values: one function for each type of a schema.

Each of them takes the bytes, a position and `MemoryLeft`, and returns the value and the
position behind it. It raises `DoesNotFit`, or `IndexError` where the bytes end too early.
"""

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from storage.schemas.avro.logical import Natural
from storage.schemas.avro.sizes import ITEM_BYTES, Sizes
from storage.schemas.avro.types import (
    AvroArray,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)
from storage.schemas.avro.writing import LEVELS_MAX
from storage.schemas.codec import TOO_DEEP, TOO_LARGE
from storage.schemas.refused import DoesNotFit

CUT_OFF: Final = "it is cut off"

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_INT_MAX: Final = 2**31


class MemoryLeft:
    """The memory that values may still take, and how much deeper they may be."""

    __slots__ = ("left", "levels")

    def __init__(self, left: int) -> None:
        self.left = left
        self.levels = LEVELS_MAX

    def take(self, size: int) -> None:
        """Raise if there is not so much; what is refused before any work costs nothing."""
        if size > self.left:
            raise DoesNotFit(TOO_LARGE)
        self.left -= size


Read = Callable[[bytes, int, MemoryLeft], tuple[Any, int]]


def reader_of(tree: AvroType, sizes: Sizes, *, natural: bool) -> Read:
    """Return what reads values: as JSON, or if `natural`, as Python has them."""
    return _Readers(sizes, natural).of(tree)


def read_long(data: bytes, at: int, _: MemoryLeft) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise DoesNotFit("a number has more than ten bytes")
    if value >= 1 << 64:
        raise DoesNotFit("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


class _Readers:
    def __init__(self, sizes: Sizes, natural: bool) -> None:
        self._sizes = sizes
        self._natural = natural
        self._known: dict[int, Read] = {}
        self._open: dict[int, list[Read]] = {}

    def of(self, tree: AvroType) -> Read:
        found = self._known.get(id(tree))
        if found is None and id(tree) in self._open:
            return _inside_itself(self._open[id(tree)], self._sizes, tree)
        if found is None:
            found = self._known[id(tree)] = self._made(tree)
        return found

    def _made(self, tree: AvroType) -> Read:
        if isinstance(tree, AvroPrimitive):
            return _natural(tree) if self._natural else _PRIMITIVES[tree.kind]
        if isinstance(tree, AvroArray):
            memory = self._sizes.memory(tree.items) + ITEM_BYTES
            return _array(self.of(tree.items), memory, self._sizes.bytes_min(tree.items))
        if isinstance(tree, AvroMap):
            memory = self._sizes.memory(tree.values) + ITEM_BYTES + 56
            return _map(self.of(tree.values), memory, self._sizes.bytes_min(tree.values) + 1)
        if isinstance(tree, AvroUnion):
            reads = [(_tag(branch), self.of(branch)) for branch in tree.branches]
            return _union([(None if self._natural else tag, read) for tag, read in reads])
        if tree.kind == "enum":
            return _enum(tree)
        if tree.kind == "fixed":
            return _fixed(tree, self._natural)
        holder = self._open[id(tree)] = []
        made = _record([(field.name, self.of(field.type)) for field in tree.fields])
        holder.append(made)
        del self._open[id(tree)]
        return made


def _inside_itself(holder: list[Read], sizes: Sizes, tree: AvroType) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[Any, int]:
        if room.levels <= 0:
            raise DoesNotFit(TOO_DEEP)
        room.take(sizes.memory(tree))
        room.levels -= 1
        value, at = holder[0](data, at, room)
        room.levels += 1
        return value, at

    return read


def _null(_: bytes, at: int, __: MemoryLeft) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int, _: MemoryLeft) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise DoesNotFit(f"a boolean is 0 or 1, not {byte}")
    return byte == 1, at + 1


def _int(data: bytes, at: int, room: MemoryLeft) -> tuple[int, int]:
    value, at = read_long(data, at, room)
    if not -_INT_MAX <= value < _INT_MAX:
        raise DoesNotFit("an int has more than 32 bits")
    return value, at


def _span(data: bytes, at: int, room: MemoryLeft) -> tuple[bytes, int]:
    size, at = read_long(data, at, room)
    end = at + size
    if size < 0 or end > len(data):
        raise DoesNotFit(f"a length of {size} where {len(data) - at} bytes follow")
    return data[at:end], end


def _string(data: bytes, at: int, room: MemoryLeft) -> tuple[str, int]:
    size = data[at]
    at += 1
    if size < 128 and not size & 1:
        end = at + (size >> 1)
        if end > len(data):
            raise DoesNotFit(f"a length of {size >> 1} where {len(data) - at} bytes follow")
        text = data[at:end]
    else:
        text, end = _span(data, at - 1, room)
    try:
        return text.decode(), end
    except UnicodeDecodeError:
        raise DoesNotFit("a string is not UTF-8") from None


def _bytes(data: bytes, at: int, room: MemoryLeft) -> tuple[str, int]:
    found, end = _span(data, at, room)
    room.take(2 * len(found))
    return found.decode("latin-1"), end


def _float(data: bytes, at: int, _: MemoryLeft) -> tuple[Any, int]:
    end = at + 4
    if end > len(data):
        raise DoesNotFit(CUT_OFF)
    value: float = _FLOAT.unpack_from(data, at)[0]
    return _shortest(value) if math.isfinite(value) else _as_text(value), end


def _double(data: bytes, at: int, _: MemoryLeft) -> tuple[Any, int]:
    end = at + 8
    if end > len(data):
        raise DoesNotFit(CUT_OFF)
    value: float = _DOUBLE.unpack_from(data, at)[0]
    return value if math.isfinite(value) else _as_text(value), end


def _shortest(value: float) -> float:
    """Return the number with the fewest digits that is this one with 32 bits."""
    for digits in (6, 7, 8):
        found = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.unpack(_FLOAT.pack(found))[0] == value:
                return found
        except OverflowError:
            continue
    return float(f"{value:.9g}")


def _as_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _natural(tree: AvroPrimitive) -> Read:
    if tree.kind in ("float", "double"):
        form = _FLOAT if tree.kind == "float" else _DOUBLE

        def read_number(data: bytes, at: int, _: MemoryLeft) -> tuple[Any, int]:
            if at + form.size > len(data):
                raise DoesNotFit(CUT_OFF)
            return form.unpack_from(data, at)[0], at + form.size

        return read_number
    of: Callable[[Any], Any] | None = None
    base: Read = _span if tree.kind == "bytes" else _PRIMITIVES[tree.kind]
    if tree.kind == "bytes":
        of = Natural.of_bytes(tree.props)
    elif tree.kind == "string":
        of = Natural.of_string(tree.props)
    elif tree.kind in ("int", "long"):
        of = Natural.of_number(tree.kind, tree.props)
    return base if of is None else _converted(base, of)


def _converted(base: Read, of: Callable[[Any], Any]) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[Any, int]:
        value, at = base(data, at, room)
        try:
            return of(value), at
        except (ValueError, OverflowError) as error:
            raise DoesNotFit(f"a logical type that has no such value: {error}") from None

    return read


def _fixed(tree: AvroNamed, natural: bool) -> Read:
    size = tree.size
    decimal = Natural.of_bytes(tree.props)

    def read_span(data: bytes, at: int, _: MemoryLeft) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise DoesNotFit(CUT_OFF)
        return data[at:end], end

    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[str, int]:
        found, end = read_span(data, at, room)
        room.take(2 * size)
        return found.decode("latin-1"), end

    if not natural:
        return read
    return read_span if decimal is None else _converted(read_span, decimal)


def _enum(tree: AvroNamed) -> Read:
    symbols = tree.symbols

    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[str, int]:
        number, at = read_long(data, at, room)
        if not 0 <= number < len(symbols):
            raise DoesNotFit(f"{tree.full_name:.100} has no symbol {number}")
        return symbols[number], at

    return read


def _count(data: bytes, at: int, room: MemoryLeft, memory: int, bytes_min: int) -> tuple[int, int]:
    """Return how many items follow, once it is sure that they are there and have room."""
    count, at = read_long(data, at, room)
    if count < 0:
        count = -count
        size, at = read_long(data, at, room)
        if size < 0 or size > len(data) - at:
            raise DoesNotFit(f"a block of {size} bytes where {len(data) - at} follow")
    if count * bytes_min > len(data) - at:
        raise DoesNotFit(f"{count} items where {len(data) - at} bytes follow")
    room.take(count * memory)
    return count, at


def _array(read_item: Read, memory: int, bytes_min: int) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _count(data, at, room, memory, bytes_min)
            if count == 0:
                return items, at
            try:
                for _ in range(count):
                    item, at = read_item(data, at, room)
                    items.append(item)
            except DoesNotFit as error:
                error.parts.append(str(len(items)))
                raise

    return read


def _map(read_value: Read, memory: int, bytes_min: int) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while True:
            count, at = _count(data, at, room, memory, bytes_min)
            if count == 0:
                return items, at
            for _ in range(count):
                name, at = _string(data, at, room)
                try:
                    items[name], at = read_value(data, at, room)
                except DoesNotFit as error:
                    error.parts.append(name)
                    raise

    return read


def _union(branches: list[tuple[str | None, Read]]) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[Any, int]:
        number, at = read_long(data, at, room)
        if not 0 <= number < len(branches):
            raise DoesNotFit(f"the union has no type {number}")
        tag, read_branch = branches[number]
        value, at = read_branch(data, at, room)
        return (value if tag is None or value is None else {tag: value}), at

    return read


def _tag(branch: AvroType) -> str | None:
    if branch.kind == "null":
        return None
    return branch.full_name if isinstance(branch, AvroNamed) else branch.kind


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int, room: MemoryLeft) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, read_field in fields:
                found[name], at = read_field(data, at, room)
        except DoesNotFit as error:
            error.parts.append(name)
            raise
        return found, at

    return read
