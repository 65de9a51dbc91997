"""The notation in which messages are defined.

    class Pet(Struct):
        name: Str = field("0+")
        age_years: Int16 = field("2+", default=-1)

    class FeedRequest(Message, key=1234, versions="0-3", flexible="2+"):
        pets: list[Pet] | None = field("0+", nullable="1+")
        brand: Str | None = field("3+", nullable="3+", default=None, tag=0)

A class stands for all versions of its message; each field names the versions that have it, in
which of them it may be null, and what it is elsewhere. Versions of a `Struct` are those of the
messages that hold it. Without `default` a field is empty: 0, "", [], or null where all versions
of a nullable record field begin. What an annotation means on the wire is in its alias.

Instances are plain objects with slots and keyword arguments. Nothing here checks values: readers
and writers do, which `codec` compiles from these definitions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Union, dataclass_transform, get_args, get_origin


class Wire(Enum):
    """How a value that is neither a list nor a struct is written; the value is what is empty."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    UUID = "uuid"


NO_UUID: Final = bytes(16)
"""What stands for "no topic id"."""

Bool = Annotated[bool, Wire.BOOL]
Int8 = Annotated[int, Wire.INT8]
Int16 = Annotated[int, Wire.INT16]
UInt16 = Annotated[int, Wire.UINT16]
Int32 = Annotated[int, Wire.INT32]
Int64 = Annotated[int, Wire.INT64]
Float64 = Annotated[float, Wire.FLOAT64]
Str = Annotated[str, Wire.STRING]
Uuid = Annotated[bytes, Wire.UUID]
Bytes = Annotated[bytes | memoryview, Wire.BYTES]
"""Read as a view of the frame: copy what outlives it."""
Records = Annotated[bytes | memoryview, Wire.RECORDS]
"""Batches as they are on the wire. Read as a view of the frame."""
RecordPieces = Annotated[bytes | memoryview | list[bytes | memoryview], Wire.RECORDS]
"""Batches to be sent, in one piece or several, none of which is copied."""

_EMPTY: Final[dict[Wire, Any]] = {
    Wire.BOOL: False,
    Wire.FLOAT64: 0.0,
    Wire.STRING: "",
    Wire.BYTES: b"",
    Wire.RECORDS: b"",
    Wire.UUID: NO_UUID,
}
_FOR_EVER: Final = 32_767
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions `first <= version <= last`; none, if `last` is before `first`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Any:
        return iter(range(self.first, self.last + 1))

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Return what "2-5", "2+" or "2" means; "" is no version."""
        if not text:
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _FOR_EVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a definition says of one field."""

    name: str
    wire: "Wire | type[Struct]"
    """Of the elements, if it is an array."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    """A scalar, None, or [] and a struct's class for a new one each time."""

    def new_default(self) -> Any:
        """Return the value of the field where nobody set it."""
        if self.default == [] or isinstance(self.default, StructType):
            return self.default() if isinstance(self.default, StructType) else []
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The right side of a field in a class body."""

    versions: str
    nullable: str
    default: Any
    tag: int | None
    tagged: str


def field(
    versions: str,
    *,
    nullable: str = "",
    default: Any = _MISSING,
    tag: int | None = None,
    tagged: str = "",
) -> Any:
    """Define a field of `versions`, null in some of them, tagged in `tagged` (all, with a tag)."""
    return _Written(versions=versions, nullable=nullable, default=default, tag=tag, tagged=tagged)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns a class body in this notation into a slotted class that knows its fields."""

    FIELDS: tuple[Field, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **keywords: Any
    ) -> "StructType":
        written = {key: value for key, value in body.items() if isinstance(value, _Written)}
        kept = {key: value for key, value in body.items() if key not in written}
        annotations = body.get("__annotations__", {})
        made = super().__new__(cls, name, bases, {"__slots__": tuple(written), **kept}, **keywords)
        made.FIELDS = tuple(_field(key, annotations[key], each) for key, each in written.items())
        return made


def _field(name: str, annotation: Any, written: _Written) -> Field:
    is_array, wire = _wire_of(annotation)
    default = written.default
    if default is _MISSING:
        default = [] if is_array else _EMPTY.get(wire, 0) if isinstance(wire, Wire) else wire
    versions = Versions.parse(written.versions)
    return Field(
        name=name,
        wire=wire,
        is_array=is_array,
        versions=versions,
        nullable=Versions.parse(written.nullable),
        tag=written.tag,
        tagged=Versions.parse(written.tagged)
        if written.tagged or written.tag is None
        else versions,
        default=default,
    )


def _wire_of(annotation: Any) -> "tuple[bool, Wire | type[Struct]]":
    """Return whether the annotation is of an array, and what it, or its elements, are."""
    if get_origin(annotation) in (Union, UnionType):
        [annotation] = [each for each in get_args(annotation) if each is not NoneType]
    is_array = get_origin(annotation) is list
    if is_array:
        [annotation] = get_args(annotation)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[1]
    assert isinstance(annotation, Wire | StructType), annotation
    return is_array, annotation  # type: ignore[return-value]


class Struct(metaclass=StructType):
    """A part of messages."""

    def __init__(self, **values: Any) -> None:
        # A class learns to build itself when it is first used: most never are.
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).FIELDS)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request, a response, or a body that other messages carry as bytes (`key` is -1)."""

    KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    """Those with compact lengths and tagged fields."""

    def __init_subclass__(cls, *, key: int = -1, versions: str, flexible: str = "") -> None:
        cls.KEY = key
        cls.VERSIONS = Versions.parse(versions)
        cls.FLEXIBLE = Versions.parse(flexible)


def _initializer(cls: StructType) -> Callable[..., None]:
    """Return an `__init__` with a keyword for each field of `cls`."""
    names: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, lines = [], []
    for each in cls.FIELDS:
        if each.default == [] or isinstance(each.default, StructType):
            names[f"new_{each.name}"] = each.default if each.default != [] else list
            parameters.append(f"{each.name}=_MISSING")
            lines.append(
                f" self.{each.name} = new_{each.name}() if {each.name} is _MISSING else {each.name}"
            )
        else:
            names[f"default_{each.name}"] = each.default
            parameters.append(f"{each.name}=default_{each.name}")
            lines.append(f" self.{each.name} = {each.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(lines) or " pass")
    exec(compile(source, f"<{cls.__name__}>", "exec"), names)  # noqa: S102 (made of definitions)
    initialize: Callable[..., None] = names["__init__"]
    return initialize
