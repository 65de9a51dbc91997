"""What every form of schema can do: Avro, JSON Schema and Protobuf match it, each in its folder.

A form never fetches anything: what a schema refers to is given with it. Whatever a caller sends, to
parse it and to compare two schemas takes at most a second and 64 MiB; a form refuses what would
take more with `InvalidSchema`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol, Self, cast

from storage.schemas.source import InvalidSchema, Named, SchemaType


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why data of one schema cannot be read with another."""

    kind: str
    """Confluent's name of the rule, like READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    """Where in the reader's schema, like /fields/1."""
    message: str


class Parsed(Protocol):
    """A valid schema."""

    @property
    def canonical(self) -> str:
        """The text that is stored and hashed: the meaning as it came, without chance spaces."""

    @property
    def normalized(self) -> str:
        """The same for all schemas that differ only in order, where order means nothing."""

    def serialized(self) -> str:
        """Return the text of `format=serialized`: canonical, but for Protobuf's descriptor."""

    def resolved(self) -> str:
        """Return the text of `format=resolved`: canonical, but for Avro's with what it refers to.

        Raises `InvalidSchema` if that cannot be one text.
        """

    @property
    def field_names(self) -> frozenset[str]:
        """The fields of its outermost part; of Protobuf, of all messages that are in no other."""

    def unreadable(self, writer: Self) -> list[Incompatibility]:
        """Return why data of `writer` cannot be read with this schema; empty: it can."""


class SchemaForm(Protocol):
    """One type of schema."""

    def parse(self, text: str, references: Sequence[Named]) -> Parsed:
        """Return the schema, or raise `InvalidSchema`."""


_FORMS: Final = {
    SchemaType.AVRO: "service.registry.formats.avro.form",
    SchemaType.JSON: "service.registry.formats.json_schema.form",
    SchemaType.PROTOBUF: "service.registry.formats.protobuf.form",
}
"""Modules that have a `FORM`, imported with their libraries by the first schema of the type."""


def form_of(kind: SchemaType) -> SchemaForm:
    """Return what reads schemas of a type, or raise `InvalidSchema` if that is not installed."""
    try:
        return cast(SchemaForm, import_module(_FORMS[kind]).FORM)
    except ModuleNotFoundError as error:
        raise InvalidSchema(
            f"schemas of type {kind} need {error.name!r} on the gateway; pip install"
            " 'riacho[schemas]'"
        ) from None
