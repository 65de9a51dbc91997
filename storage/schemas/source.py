"""A schema as it is handed from one part to another: its type, its text, what it refers to."""

from dataclasses import dataclass
from enum import StrEnum


class SchemaType(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Named:
    """A schema that another one refers to, with everything that it refers to before it."""

    name: str
    """As the other one calls it: Avro's full name, the URL of a `$ref`, the path of an import."""
    text: str
    """Its canonical text."""


class InvalidSchema(Exception):
    """The message says what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """All that a codec is made of."""

    type: SchemaType
    text: str
    references: tuple[Named, ...] = ()
    """What it refers to, dependencies first; not needed for Protobuf."""
    descriptors: bytes = b""
    """Of Protobuf only: a serialized FileDescriptorSet, imports first and the schema last."""
