"""Which data can be read with which Avro schema: the rules of Avro's schema resolution.

The verdict is the one of Avro's own checkers (a test compares them). Those merge what they find, so
this one is written to name every place with its own rule, and to end however large the schemas are.
"""

from typing import Final

from service.registry.formats.form import Incompatibility
from storage.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    AvroArray,
    AvroField,
    AvroMap,
    AvroNamed,
    AvroType,
    AvroUnion,
)
from storage.schemas.source import InvalidSchema

LEVELS_MAX: Final = 200
"""Maximum number of types inside each other, over names that refer to each other."""

PAIRS_MAX: Final = 100_000
"""Maximum number of pairs of types that are compared: of two schemas of 1 MiB, far fewer."""

INCOMPATIBILITIES_MAX: Final = 1000
"""Maximum number that is reported."""

_PROMOTED: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""What else can be read as a type."""

_READS_NOTHING_ELSE: Final[frozenset[str]] = frozenset()


def unreadable(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Return why data of `writer` cannot be read with `reader`; empty: it can."""
    return _Comparison().compare(reader, writer, "", 0)[:INCOMPATIBILITIES_MAX]


class _Comparison:
    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[Incompatibility]] = {}
        """By pair. Of a pair that is compared now, nothing yet: so far it is compatible."""
        self._branches: dict[int, dict[str, list[tuple[int, AvroType]]]] = {}
        """Of the reader's unions: their branches by what they can read."""

    def compare(
        self, reader: AvroType, writer: AvroType, path: str, level: int
    ) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._found:
            return self._found[pair]
        if len(self._found) >= PAIRS_MAX or level > LEVELS_MAX:
            raise InvalidSchema(
                "the schemas are too large or too deep to be compared: "
                f"more than {PAIRS_MAX} pairs of types, or {LEVELS_MAX} inside each other"
            )
        self._found[pair] = []
        found = self._compare(reader, writer, path, level)
        self._found[pair] = found
        return found

    def _compare(
        self, reader: AvroType, writer: AvroType, path: str, level: int
    ) -> list[Incompatibility]:
        if isinstance(writer, AvroUnion):
            return self._from_union(reader, writer, path, level)
        if isinstance(reader, AvroUnion):
            return self._into_union(reader, writer, path, level)
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, _READS_NOTHING_ELSE):
                return []
            message = f"the reader's type {_name(reader)} cannot read {_name(writer)}"
            return [Incompatibility("TYPE_MISMATCH", path or "/", message)]
        if isinstance(reader, AvroArray) and isinstance(writer, AvroArray):
            return self.compare(reader.items, writer.items, f"{path}/items", level + 1)
        if isinstance(reader, AvroMap) and isinstance(writer, AvroMap):
            return self.compare(reader.values, writer.values, f"{path}/values", level + 1)
        if isinstance(reader, AvroNamed) and isinstance(writer, AvroNamed):
            return self._named(reader, writer, path, level)
        return []

    def _from_union(
        self, reader: AvroType, writer: AvroUnion, path: str, level: int
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for number, branch in enumerate(writer.branches):
            why = self.compare(reader, branch, path, level + 1)
            if why and isinstance(reader, AvroUnion):
                message = f"the reader's union lacks {_name(branch)}"
                why = [Incompatibility("MISSING_UNION_BRANCH", f"{path}/{number}", message)]
            found += why[: INCOMPATIBILITIES_MAX - len(found)]
        return found

    def _into_union(
        self, reader: AvroUnion, writer: AvroType, path: str, level: int
    ) -> list[Incompatibility]:
        for number, branch in self._could_read(reader, writer):
            if not self.compare(branch, writer, f"{path}/{number}", level + 1):
                return []
        message = f"the reader's union lacks {_name(writer)}"
        return [Incompatibility("MISSING_UNION_BRANCH", path or "/", message)]

    def _could_read(self, union: AvroUnion, writer: AvroType) -> list[tuple[int, AvroType]]:
        """Return the branches that need a look inside, which are few even of a large union."""
        by_key = self._branches.get(id(union))
        if by_key is None:
            by_key = self._branches[id(union)] = {}
            for number, branch in enumerate(union.branches):
                for key in _keys(branch):
                    by_key.setdefault(key, []).append((number, branch))
        if isinstance(writer, AvroNamed):
            by_name = by_key.get(writer.name, [])
            by_alias = by_key.get(f"alias {writer.full_name}", [])
            return [*by_name, *(each for each in by_alias if each not in by_name)]
        kinds = [writer.kind, *(kind for kind, read in _PROMOTED.items() if writer.kind in read)]
        return [each for kind in kinds for each in by_key.get(f"type {kind}", [])]

    def _named(
        self, reader: AvroNamed, writer: AvroNamed, path: str, level: int
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        if not _same_name(reader, writer):
            message = f"the reader's {reader.full_name} has another name than {writer.full_name}"
            found.append(Incompatibility("NAME_MISMATCH", f"{path}/name", message))
        if reader.kind == "fixed" and reader.size != writer.size:
            message = f"{reader.size} bytes instead of {writer.size}"
            found.append(Incompatibility("FIXED_SIZE_MISMATCH", f"{path}/size", message))
        if reader.kind == "enum" and reader.enum_default is None:
            there = set(reader.symbols)
            if missing := [each for each in writer.symbols if each not in there]:
                message = f"the reader lacks the symbols {', '.join(missing):.300}"
                found.append(Incompatibility("MISSING_ENUM_SYMBOLS", f"{path}/symbols", message))
        if reader.kind == "record":
            found += self._fields(reader, writer, path, level)
        return found

    def _fields(
        self, reader: AvroNamed, writer: AvroNamed, path: str, level: int
    ) -> list[Incompatibility]:
        written = {each.name: each for each in writer.fields}
        found: list[Incompatibility] = []
        for number, field in enumerate(reader.fields):
            here = f"{path}/fields/{number}"
            source = _source(field, written)
            if source is not None:
                why = self.compare(field.type, source.type, f"{here}/type", level + 1)
            elif field.default is NO_DEFAULT:
                message = f"the field {field.name!r} has no default, and the writer lacks it"
                why = [Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", here, message)]
            else:
                continue
            found += why[: INCOMPATIBILITIES_MAX - len(found)]
        return found


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    """Return the writer's field that the reader's is filled from."""
    return next((written[n] for n in (field.name, *field.aliases) if n in written), None)


def _same_name(reader: AvroNamed, writer: AvroNamed) -> bool:
    return reader.name == writer.name or writer.full_name in reader.aliases


def _keys(branch: AvroType) -> list[str]:
    """Return what a branch of a union is found by: names have no spaces."""
    if isinstance(branch, AvroNamed):
        return [branch.name, *(f"alias {each}" for each in branch.aliases)]
    return [f"type {branch.kind}"]


def _name(kind: AvroType) -> str:
    if isinstance(kind, AvroNamed):
        return f"{kind.kind} {kind.full_name}"
    return kind.kind if kind.kind in PRIMITIVES else f"an {kind.kind}"
