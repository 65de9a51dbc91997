"""Makes the function that reads one message in one version.

What it is for `FeedRequest` (see `notation`) in version 2, where `S1` is an `unpack_from`:

    def run(b, m, p, end):
        left = ELEMENTS_MAX
        x = NEW(FeedRequest)
        n = b[p]; p += 1
        if n > 127: n, p = uvarint(b, p, n)
        n -= 1
        ...
        if n > (end - p) // 4 or n > left: raise ...
        left -= n
        for _ in range(n): ...

Nothing is allocated for a length before the rest of the frame has been found to be long enough for
it. `b` are the bytes; `m` is a view of them, of which values of bytes are parts.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from service.kafka.protocol import wire
from service.kafka.protocol.notation import Field, Message, StructType, Wire
from service.kafka.protocol.source import FORMATS, Source, least_size, present

_HELPERS: Final = {
    "uvarint": wire.uvarint,
    "skip_tags": wire.skip_tags,
    "too_long": wire.too_long,
    "too_many": wire.too_many,
    "is_null": wire.is_null,
    "Malformed": wire.MalformedFrame,
    "ELEMENTS_MAX": wire.ELEMENTS_MAX,
    "STRING_BYTES_MAX": wire.STRING_BYTES_MAX,
}


def reader(message: type[Message], version: int) -> Source:
    """Return the source of `run(b, m, p, end)`, which returns the message and where it ended."""
    made = Source(f"{message.__name__} v{version}", "def run(b, m, p, end):")
    made.names.update(_HELPERS)
    writing = _Reader(made, version, version in message.FLEXIBLE)
    made.line("left = ELEMENTS_MAX")
    writing.struct(message, "x")
    made.line("return x, p")
    return made


class _Reader:
    def __init__(self, source: Source, version: int, is_flexible: bool) -> None:
        self.source = source
        self.version = version
        self.is_flexible = is_flexible

    def struct(self, struct_type: StructType, target: str) -> None:
        """Read a struct into the new name `target`."""
        s = self.source
        cls = s.constant("C", struct_type)
        s.line(f"{target} = {s.constant('NEW', object.__new__)}({cls})")
        plain, tagged = present(struct_type, self.version)
        for each in struct_type.FIELDS:
            if each not in plain:
                s.line(f"{target}.{each.name} = {self._default(each)}")
        run: list[Field] = []
        for each in plain:
            if each.wire in FORMATS and not each.is_array:
                run.append(each)
                continue
            self._fixed(run, target)
            run = []
            with s.within(each.name):
                self._value(each, f"{target}.{each.name}")
        self._fixed(run, target)
        if self.is_flexible:
            self._tags(tagged, target)

    def _default(self, each: Field) -> str:
        if each.default == []:
            return "[]"
        if isinstance(each.default, StructType):
            return f"{self.source.constant('C', each.default)}()"
        return repr(each.default)

    def _fixed(self, run: list[Field], target: str) -> None:
        """Read adjacent values of one size each."""
        if not run:
            return
        code = "".join(FORMATS[each.wire] for each in run if isinstance(each.wire, Wire))
        unpack, size = _unpack(code)
        s = self.source
        names = ", ".join(f"{target}.{each.name}" for each in run)
        with s.within(run[0].name):
            s.line(f"{names}{',' if len(run) == 1 else ''} = {s.constant('S', unpack)}(b, p)")
        s.line(f"p += {size}")

    def _varint(self, name: str) -> None:
        self.source.line(f"{name} = b[p]; p += 1")
        self.source.line(f"if {name} > 127: {name}, p = uvarint(b, p, {name})")

    def _length(self, size: int) -> None:
        """Read a length into `n`: -1 is null."""
        if self.is_flexible:
            self._varint("n")
            self.source.line("n -= 1")
        else:
            unpack, _ = _unpack("h" if size == 2 else "i")
            self.source.line(f"n, = {self.source.constant('S', unpack)}(b, p); p += {size}")

    def _value(self, each: Field, target: str) -> None:
        """Read a value whose size is not fixed."""
        s = self.source
        is_nullable = self.version in each.nullable
        if isinstance(each.wire, StructType) and not each.is_array:
            self._inner(each.wire, target, is_nullable)
            return
        self._length(2 if each.wire is Wire.STRING and not each.is_array else 4)
        if is_nullable:
            with s.block("if n == -1:"):
                s.line(f"{target} = None")
            with s.block("else:"):
                self._content(each, target)
        else:
            s.line("if n == -1: raise is_null()")
            self._content(each, target)

    def _inner(self, struct_type: StructType, target: str, is_nullable: bool) -> None:
        """Read a struct, behind a byte that says whether it is there, if it may be null."""
        s = self.source
        name = s.fresh("x")
        if not is_nullable:
            self.struct(struct_type, name)
            s.line(f"{target} = {name}")
            return
        s.line("n = b[p]; p += 1")
        with s.block("if n == 255:"):
            s.line(f"{target} = None")
        with s.block("else:"):
            s.line('if n != 1: raise Malformed(f"a mark of {n} before a struct")')
            self.struct(struct_type, name)
            s.line(f"{target} = {name}")

    def _content(self, each: Field, target: str) -> None:
        """Read the `n` elements or bytes of a value."""
        if each.is_array:
            self._array(each.wire, target)
        elif each.wire is Wire.STRING:
            self._text(target)
        else:
            self._bytes(target)

    def _text(self, target: str) -> None:
        s = self.source
        s.line("q = p + n")
        s.line("if n < 0 or q > end or n > STRING_BYTES_MAX: raise too_long(n, end - p)")
        s.line(f'{target} = str(b[p:q], "utf-8"); p = q')

    def _bytes(self, target: str) -> None:
        s = self.source
        s.line("q = p + n")
        s.line("if n < 0 or q > end: raise too_long(n, end - p)")
        s.line(f"{target} = m[p:q]; p = q")

    def _array(self, element: Wire | StructType, target: str) -> None:
        s = self.source
        least = max(1, least_size(element, self.version, self.is_flexible))
        s.line(f"if n < 0 or n > (end - p) // {least}: raise too_long(n, end - p)")
        self._counted()
        if isinstance(element, Wire) and element in FORMATS and element is not Wire.UUID:
            unpack = s.constant("unpack", _unpack_many(FORMATS[element]))
            s.line(f"{target} = {unpack}(b, p, n); p += n * {least}")
            return
        into, item = s.fresh("a"), s.fresh("x")
        s.line(f"{target} = {into} = []")
        with s.block("for _ in range(n):"):
            if isinstance(element, StructType):
                self.struct(element, item)
            elif element is Wire.UUID:
                s.line(f"{item} = bytes(b[p:p + 16]); p += 16")
            else:
                self._length(2 if element is Wire.STRING else 4)
                s.line("if n == -1: raise is_null()")
                self._text(item) if element is Wire.STRING else self._bytes(item)
            s.line(f"{into}.append({item})")

    def _counted(self) -> None:
        """Take the `n` elements off those that are left."""
        self.source.line("left -= n")
        self.source.line("if left < 0: raise too_many(n)")

    def _tags(self, tagged: list[Field], target: str) -> None:
        """Read the tagged fields that are known, and skip the others."""
        s = self.source
        self._varint("n")
        if not tagged:
            with s.block("if n:"):
                self._counted()
                s.line("p = skip_tags(b, p, end, n)")
            return
        with s.block("if n:"):
            s.line("if n > (end - p) // 2: raise too_long(n, end - p)")
            self._counted()
            stop = s.fresh("e")
            with s.block("for _ in range(n):"):
                tag = s.fresh("t")
                self._varint(tag)
                self._varint("n")
                s.line(f"{stop} = p + n")
                s.line(f"if {stop} > end: raise too_long(n, end - p)")
                for number, each in enumerate(tagged):
                    which = f"{'elif' if number else 'if'} {tag} == {each.tag}:"
                    with s.block(which), s.within(each.name):
                        self._tagged(each, f"{target}.{each.name}", target)
                        s.line(f'if p != {stop}: raise Malformed("not of the size it says")')
                s.line(f"else: p = {stop}")

    def _tagged(self, each: Field, value: str, target: str) -> None:
        if each.wire in FORMATS and not each.is_array:
            self._fixed([each], target)
        else:
            self._value(each, value)


@cache
def _unpack(code: str) -> tuple[Any, int]:
    """Return what reads adjacent values, and their size: the same object for the same format."""
    made = struct.Struct(">" + code)
    return made.unpack_from, made.size


@cache
def _unpack_many(code: str) -> Callable[[wire.Buffer, int, int], list[Any]]:
    def unpack_many(b: wire.Buffer, p: int, n: int) -> list[Any]:
        return list(struct.unpack_from(f">{n}{code}", b, p))

    return unpack_many
