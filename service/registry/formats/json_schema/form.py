"""JSON Schemas as one form of the registry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from jsonschema_rs import Validator

from service.registry.formats.form import Incompatibility, InvalidSchema, Named
from service.registry.formats.json_schema import compatibility, limits
from service.registry.formats.json_schema.documents import Documents
from service.registry.formats.json_schema.engine import compiled
from service.registry.formats.json_schema.reading import Value, read, write


@dataclass(frozen=True)
class JsonSchema:
    """A valid schema with all that it refers to."""

    documents: Documents
    checks: int
    """How many schemas look at one value, at most."""

    canonical: str

    @cached_property
    def normalized(self) -> str:
        return write(self.documents.root.schema, in_order=True)

    @cached_property
    def has_alternatives(self) -> bool:
        """Whether there is an `anyOf` or `oneOf`: data may fail in several ways at once."""
        return any(
            isinstance(place.schema, dict) and ("anyOf" in place.schema or "oneOf" in place.schema)
            for _, place in self.documents.places
        )

    def serialized(self) -> str:
        return self.canonical

    def validator(self) -> Validator:
        """Return what checks data; it takes some 200 bytes for each state of a pattern."""
        return compiled(self.documents)

    def unreadable(self, writer: Self) -> list[Incompatibility]:
        return compatibility.unreadable(writer.documents, self.documents)


class _JsonSchemaForm:
    def parse(self, text: str, references: Sequence[Named]) -> JsonSchema:
        """Return the schema of `text`, or raise `InvalidSchema`."""
        value: Value = read(text)
        if not isinstance(value, dict | bool):
            raise InvalidSchema("a JSON Schema is an object, `true` or `false`")
        canonical = write(value)
        documents = Documents(value, references)
        checks = limits.check(documents)
        compiled(documents)
        return JsonSchema(documents, checks, canonical)


FORM: Final = _JsonSchemaForm()
