"""Python source of readers and writers, line by line, that remembers which field a line is for."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from service.kafka.protocol.notation import Field, StructType, Wire

FORMATS: Final = {
    Wire.BOOL: "?",
    Wire.INT8: "b",
    Wire.INT16: "h",
    Wire.UINT16: "H",
    Wire.INT32: "i",
    Wire.INT64: "q",
    Wire.FLOAT64: "d",
    Wire.UUID: "16s",
}
"""How `struct` calls what has one size."""


class Source:
    """A function in the making: its lines, the objects they name, and the field of each line."""

    def __init__(self, name: str, first_line: str) -> None:
        self.name = name
        self.names: dict[str, Any] = {}
        self._lines = [first_line]
        self._paths = [""]
        self._path: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str, path: str | None = None) -> None:
        """Add a line for the field at `path`, or for the one that is being worked on."""
        self._lines.append(" " * self._depth + text)
        self._paths.append(self.here if path is None else path)

    @property
    def here(self) -> str:
        return ".".join(self._path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is written inside, below `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def within(self, field: str) -> Iterator[None]:
        """Write lines that are for `field` of what the lines before were for."""
        self._path.append(field)
        yield
        self._path.pop()

    def fresh(self, prefix: str) -> str:
        """Return a name that is used nowhere else in the function."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object) -> str:
        """Return a name for `value`: the same for the same object."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def compiled(self) -> Any:
        """Return the function."""
        # S102: the source is made of our own definitions, and of nothing that came in.
        exec(compile("\n".join(self._lines), self.filename, "exec"), self.names)  # noqa: S102
        return self.names["run"]

    @property
    def filename(self) -> str:
        return f"<kafka {self.name}>"

    def path(self, traceback: TracebackType | None) -> str:
        """Return the field that was being read or written when an error was raised."""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                found = self._paths[traceback.tb_lineno - 1]
                return f"{self.name}: {found}" if found else self.name
            traceback = traceback.tb_next
        return self.name


def is_tagged(each: Field, version: int) -> bool:
    return each.tag is not None and version in each.tagged


def present(struct_type: StructType, version: int) -> tuple[list[Field], list[Field]]:
    """Return the fields of a version in order, and those that are tagged."""
    there = [each for each in struct_type.FIELDS if version in each.versions]
    tagged = [each for each in there if is_tagged(each, version)]
    tagged.sort(key=lambda each: each.tag or 0)
    return [each for each in there if not is_tagged(each, version)], tagged


def least_size(wire: Wire | StructType, version: int, is_flexible: bool) -> int:
    """Return how many bytes a value that is not null has at least."""
    if isinstance(wire, StructType):
        plain, _ = present(wire, version)
        return sum(_least_of(each, version, is_flexible) for each in plain) + is_flexible
    if wire in FORMATS:
        return struct.calcsize(">" + FORMATS[wire])
    if is_flexible:
        return 1
    return 2 if wire is Wire.STRING else 4


def _least_of(each: Field, version: int, is_flexible: bool) -> int:
    if each.is_array:
        return 1 if is_flexible else 4
    if isinstance(each.wire, StructType) and version in each.nullable:
        return 1
    return least_size(each.wire, version, is_flexible)
