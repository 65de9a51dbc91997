"""Avro as a form of schema."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Self

from service.registry.formats.avro.compatibility import unreadable
from service.registry.formats.avro.printing import print_avro
from service.registry.formats.form import Incompatibility
from storage.schemas.avro.parsing import parse_avro
from storage.schemas.avro.types import AvroNamed, AvroType
from storage.schemas.source import InvalidSchema, Named


class AvroSchema:
    """A valid Avro schema."""

    def __init__(self, tree: AvroType, known: Sequence[str]) -> None:
        self._tree = tree
        self._known = known
        """Names that are defined in schemas it refers to."""

    @cached_property
    def canonical(self) -> str:
        return print_avro(self._tree, self._known)

    @cached_property
    def normalized(self) -> str:
        return print_avro(self._tree, self._known, is_sorted=True)

    def serialized(self) -> str:
        return self.canonical

    def resolved(self) -> str:
        try:
            text = print_avro(self._tree, ())
            parse_avro(
                text, {}, is_checked=True
            )  # It nests deeper, perhaps too deep for those who read it.
        except (InvalidSchema, RecursionError):
            raise InvalidSchema(
                "with what it refers to, the schema nests too deep for one text"
            ) from None
        return text

    @property
    def field_names(self) -> frozenset[str]:
        fields = self._tree.fields if isinstance(self._tree, AvroNamed) else ()
        return frozenset(each.name for each in fields)

    def unreadable(self, writer: Self) -> list[Incompatibility]:
        return unreadable(self._tree, writer._tree)


class AvroForm:
    def parse(self, text: str, references: Sequence[Named]) -> AvroSchema:
        known: dict[str, AvroNamed] = {}
        for each in references:
            try:
                known = parse_avro(each.text, known, is_checked=True)[1]
            except InvalidSchema as error:
                raise InvalidSchema(f"the reference {each.name!r:.200}: {error}") from None
        tree, _ = parse_avro(text, known)
        schema = AvroSchema(tree, list(known))
        try:
            schema.canonical.encode()
        except UnicodeEncodeError:
            raise InvalidSchema("the schema has half of a surrogate pair in a string") from None
        return schema


FORM: Final = AvroForm()
