"""Makes the function that writes one message in one version.

    def run(x, out, sink):
        w = out.append
        w(P1(x.throttle_time_ms, x.error_code))
        ...

The function puts bytes into `out`, which its caller joins. Large records are not copied: what is in
`out` is joined and moved to `sink`, then the records follow as they are.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from service.kafka.protocol import wire
from service.kafka.protocol.notation import Field, Message, StructType, Wire
from service.kafka.protocol.source import FORMATS, Source, present

PIECE_BYTES_MIN: Final = 4096
"""Of a piece of its own: copying less is quicker than sending one more piece."""


def writer(message: type[Message], version: int) -> Source:
    """Return the source of `run(x, out, sink)`."""
    made = Source(f"{message.__name__} v{version}", "def run(x, out, sink):")
    made.names.update(
        uvarint_bytes=wire.uvarint_bytes,
        compact_string=wire.compact_string,
        legacy_string=wire.legacy_string,
        uuid_bytes=wire.uuid_bytes,
        ONE_BYTE=wire.ONE_BYTE,
        join=b"".join,
        records=_records,
    )
    made.line("w = out.append")
    _Writer(made, version, version in message.FLEXIBLE).struct(message, "x")
    return made


def _records(value: Any, out: list[Any], sink: list[Any]) -> None:
    """Write batches in one piece or several, without their length."""
    for piece in value if isinstance(value, list) else (value,):
        if len(piece) < PIECE_BYTES_MIN:
            out.append(piece)
            continue
        sink.append(b"".join(out))
        out.clear()
        sink.append(piece)


def _size(value: Any) -> int:
    return sum(map(len, value)) if isinstance(value, list) else len(value)


class _Writer:
    def __init__(self, source: Source, version: int, is_flexible: bool) -> None:
        self.source = source
        self.version = version
        self.is_flexible = is_flexible
        self.w = "w"
        """What writes: to the whole, or into a tagged field."""
        self._code = ""
        self._values: list[str] = []
        self._path = ""

    def struct(self, struct_type: StructType, value: str) -> None:
        plain, tagged = present(struct_type, self.version)
        for each in plain:
            with self.source.within(each.name):
                self._field(each, f"{value}.{each.name}")
        if self.is_flexible:
            self._tags(tagged, value)
        self._flush()

    def _field(self, each: Field, value: str) -> None:
        if each.wire in FORMATS and not each.is_array:
            assert isinstance(each.wire, Wire)
            self._fixed(each.wire, value)
            return
        self._flush()
        is_nullable = self.version in each.nullable
        s = self.source
        v = s.fresh("v")
        s.line(f"{v} = {value}")
        if isinstance(each.wire, StructType) and not each.is_array:
            self._inner(each.wire, v, is_nullable)
            return
        if not is_nullable:
            self._content(each, v)
            return
        with s.block(f"if {v} is None:"):
            s.line(f"{self.w}({self._null(each)!r})")
        with s.block("else:"):
            self._content(each, v)

    def _null(self, each: Field) -> bytes:
        if self.is_flexible:
            return b"\0"
        return b"\xff" * (2 if each.wire is Wire.STRING and not each.is_array else 4)

    def _fixed(self, kind: Wire, value: str) -> None:
        """Write a value of one size, together with its neighbours."""
        if not self._code:
            self._path = self.source.here
        self._code += FORMATS[kind]
        self._values.append(f"uuid_bytes({value})" if kind is Wire.UUID else value)

    def _flush(self) -> None:
        if not self._code:
            return
        pack = self.source.constant("P", _pack(self._code))
        self.source.line(f"{self.w}({pack}({', '.join(self._values)}))", self._path)
        self._code, self._values = "", []

    def _inner(self, struct_type: StructType, value: str, is_nullable: bool) -> None:
        s = self.source
        if not is_nullable:
            self.struct(struct_type, value)
            return
        with s.block(f"if {value} is None:"):
            s.line(f"{self.w}(b'\\xff')")
        with s.block("else:"):
            s.line(f"{self.w}(b'\\1')")
            self.struct(struct_type, value)

    def _content(self, each: Field, value: str) -> None:
        """Write a value that is not null, with its length."""
        s = self.source
        if each.is_array:
            self._array(each.wire, value)
        elif each.wire is Wire.STRING:
            self._text(value)
        elif each.wire is Wire.RECORDS and self.w == "w":
            self._length(f"{s.constant('size', _size)}({value})")
            s.line(f"records({value}, out, sink)")
        else:
            self._bytes(value)

    def _text(self, value: str) -> None:
        kind = "compact" if self.is_flexible else "legacy"
        self.source.line(f"{self.w}({kind}_string({value}))")

    def _bytes(self, value: str) -> None:
        self._length(f"len({value})")
        self.source.line(f"{self.w}({value})")

    def _length(self, length: str) -> None:
        if self.is_flexible:
            self.source.line(f"n = {length} + 1")
            self.source.line(f"{self.w}(ONE_BYTE[n] if n < 128 else uvarint_bytes(n))")
        else:
            self.source.line(f"{self.w}({self.source.constant('P', _pack('i'))}({length}))")

    def _array(self, element: Wire | StructType, value: str) -> None:
        s = self.source
        if isinstance(element, Wire) and element in FORMATS and element is not Wire.UUID:
            many = s.constant("pack", _pack_many(FORMATS[element], self.is_flexible))
            s.line(f"{self.w}({many}({value}))")
            return
        self._length(f"len({value})")
        item = s.fresh("x")
        with s.block(f"for {item} in {value}:"):
            if isinstance(element, StructType):
                self.struct(element, item)
            elif element is Wire.UUID:
                s.line(f"{self.w}(uuid_bytes({item}))")
            elif element is Wire.STRING:
                self._text(item)
            else:
                self._bytes(item)

    def _tags(self, tagged: list[Field], value: str) -> None:
        """Write the tagged fields that are not what they are by default."""
        if not tagged:
            self._code += "x"
            return
        self._flush()
        s = self.source
        names = [(each, s.fresh("v")) for each in tagged]
        for each, name in names:
            s.line(f"{name} = {value}.{each.name}")
        with s.block(f"if {' or '.join(_is_set(each, name) for each, name in names)}:"):
            count = " + ".join(f"({_is_set(each, name)})" for each, name in names)
            s.line(f"{self.w}(ONE_BYTE[{count}])")
            for each, name in names:
                with s.within(each.name), s.block(f"if {_is_set(each, name)}:"):
                    self._tag(each, name)
        with s.block("else:"):
            s.line(f"{self.w}(b'\\0')")

    def _tag(self, each: Field, name: str) -> None:
        """Write one tagged field, whose size comes first."""
        s, outer = self.source, self.w
        parts = s.fresh("parts")
        self.w = s.fresh("w")
        s.line(f"{parts} = []; {self.w} = {parts}.append")
        self._field(each, name)
        self._flush()
        self.w = outer
        s.line(f"{parts} = join({parts})")
        s.line(f"{self.w}(ONE_BYTE[{each.tag}] + uvarint_bytes(len({parts})) + {parts})")


def _is_set(each: Field, name: str) -> str:
    if each.default == []:
        return f"{name} != []"
    return f"{name} is not None" if each.default is None else f"{name} != {each.default!r}"


@cache
def _pack(code: str) -> Callable[..., bytes]:
    """Return what writes adjacent values: the same object for the same format."""
    return struct.Struct(">" + code).pack


@cache
def _pack_many(code: str, is_flexible: bool) -> Callable[[list[Any]], bytes]:
    """Return what writes an array of numbers, with its length."""
    short = [struct.Struct(f">{'B' if is_flexible else 'i'}{n}{code}").pack for n in range(8)]
    more = int(is_flexible)

    def pack_many(values: list[Any]) -> bytes:
        count = len(values)
        if count < 8:
            return short[count](count + more, *values)
        length = wire.uvarint_bytes(count + 1) if is_flexible else struct.pack(">i", count)
        return length + struct.pack(f">{count}{code}", *values)

    return pack_many
