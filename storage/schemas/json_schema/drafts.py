"""Drafts of JSON Schema, and in which keywords schemas stand within schemas."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from storage.schemas.json_schema.reading import Value


class Dialect(IntEnum):
    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 19
    DRAFT_2020_12 = 20

    @property
    def label(self) -> str:
        return {19: "2019-09", 20: "2020-12"}.get(self, str(self.value))

    @property
    def ref_stands_alone(self) -> bool:
        """Whether keywords beside a `$ref` mean nothing."""
        return self <= Dialect.DRAFT_7


_BY_NAME: Final = {
    "json-schema.org/schema": Dialect.DRAFT_4,
    "json-schema.org/draft-04/schema": Dialect.DRAFT_4,
    "json-schema.org/draft-06/schema": Dialect.DRAFT_6,
    "json-schema.org/draft-07/schema": Dialect.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT_2020_12,
}
_META_PREFIXES: Final = (
    "json-schema.org/draft/2019-09/meta/",
    "json-schema.org/draft/2020-12/meta/",
)

SINGLE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
LISTED: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
MAPPED: Final = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)
REFERRING: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that refer to a schema. Where a dynamic one leads depends on the data; we take the
target that it has when nothing else was entered."""


def draft_of(value: Value, otherwise: Dialect = Dialect.DRAFT_7) -> Dialect:
    """Return the draft that `$schema` names; one that nobody knows is draft 7, as without it."""
    named = value.get("$schema") if isinstance(value, dict) else None
    if not isinstance(named, str):
        return otherwise
    return _BY_NAME.get(_without_scheme(named), Dialect.DRAFT_7)


def is_meta_schema(uri: str) -> bool:
    """Whether `uri` is that of a draft itself, which every validator has."""
    name = _without_scheme(uri)
    return name in _BY_NAME or name.startswith(_META_PREFIXES)


def schemas_within(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each schema that stands directly in `schema`."""
    for keyword in SINGLE:
        if isinstance(schema.get(keyword), dict | bool):
            yield keyword, schema[keyword]
    for keyword in LISTED:
        if isinstance(members := schema.get(keyword), list):
            for number, member in enumerate(members):
                yield f"{keyword}/{number}", member
    for keyword in MAPPED:
        if isinstance(named := schema.get(keyword), dict):
            for name, member in named.items():
                if isinstance(member, dict | bool):
                    yield f"{keyword}/{name}", member


def _without_scheme(uri: str) -> str:
    return uri.removesuffix("#").removeprefix("http://").removeprefix("https://")
