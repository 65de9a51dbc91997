"""The tree of an Avro schema, as it was written: with documentation, aliases and properties."""

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)

NO_DEFAULT: Final = object()


@dataclass(eq=False, slots=True)
class AvroPrimitive:
    kind: str
    props: dict[str, Any] = field(default_factory=dict)
    """Attributes that Avro does not define, such as logicalType."""


@dataclass(eq=False, slots=True)
class AvroArray:
    items: "AvroType"
    props: dict[str, Any] = field(default_factory=dict)
    kind: str = "array"


@dataclass(eq=False, slots=True)
class AvroMap:
    values: "AvroType"
    props: dict[str, Any] = field(default_factory=dict)
    kind: str = "map"


@dataclass(eq=False, slots=True)
class AvroUnion:
    branches: list["AvroType"]
    kind: str = "union"


@dataclass(eq=False, slots=True)
class AvroField:
    name: str
    type: "AvroType"
    doc: Any = None
    default: Any = NO_DEFAULT
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class AvroNamed:
    """A record, an enum or a fixed."""

    kind: str
    full_name: str
    doc: Any = None
    aliases: list[str] = field(default_factory=list)
    """Full names."""
    props: dict[str, Any] = field(default_factory=dict)
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    enum_default: str | None = None
    size: int = 0

    @property
    def namespace(self) -> str:
        return self.full_name.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]


AvroType: TypeAlias = AvroPrimitive | AvroArray | AvroMap | AvroUnion | AvroNamed
