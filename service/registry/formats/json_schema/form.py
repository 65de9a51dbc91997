"""JSON Schemas as one form of the registry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from service.registry.formats.form import Incompatibility
from service.registry.formats.json_schema import compatibility
from storage.schemas.json_schema import limits
from storage.schemas.json_schema.documents import Documents
from storage.schemas.json_schema.engine import compiled
from storage.schemas.json_schema.reading import Value, read, write
from storage.schemas.source import InvalidSchema, Named


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

    def serialized(self) -> str:
        return self.canonical

    def resolved(self) -> str:
        return self.canonical

    @property
    def field_names(self) -> frozenset[str]:
        root = self.documents.root.schema
        properties = root.get("properties") if isinstance(root, dict) else None
        return frozenset(properties if isinstance(properties, dict) else ())

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
