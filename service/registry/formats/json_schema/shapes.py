"""What a schema says, as the shapes that Confluent's registry compares.

A schema is of one kind if it says one thing, and a combination if it says several: `type` with
`enum` is both at once (`allOf`), a list of types is any of them (`anyOf`). Without `type`, the
keywords tell the kind: `minLength` speaks of strings. So

    {"type": "string", "enum": ["a"]}      allOf(string, enum)
    {"type": ["string", "null"]}           anyOf(string, null)
    {"properties": {"a": true}}            object
    {"title": "whatever"}                  anything
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from storage.schemas.json_schema.documents import Documents, SchemaPlace
from storage.schemas.json_schema.drafts import Dialect
from storage.schemas.source import InvalidSchema


class ShapeKind(StrEnum):
    ANYTHING = "anything"
    NOTHING = "nothing"
    NULL = "null"
    BOOLEAN = "boolean"
    STRING = "string"
    NUMBER = "number"
    OBJECT = "object"
    ARRAY = "array"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    CONDITION = "if"
    COMBINATION = "combination"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a schema, or a part of one, says.

    `integer` is set for numbers without a fraction. Only combinations have a `criterion`, which
    is `allOf`, `anyOf` or `oneOf`, and `parts`: other shapes of this schema, or places of others.
    """

    kind: ShapeKind
    place: SchemaPlace
    integer: bool = False
    criterion: str = ""
    parts: "tuple[Shape | SchemaPlace, ...]" = ()

    @property
    def keywords(self) -> dict[str, Any]:
        return self.place.schema if isinstance(self.place.schema, dict) else {}


_KINDS: Final = {
    "null": ShapeKind.NULL,
    "boolean": ShapeKind.BOOLEAN,
    "string": ShapeKind.STRING,
    "number": ShapeKind.NUMBER,
    "integer": ShapeKind.NUMBER,
    "object": ShapeKind.OBJECT,
    "array": ShapeKind.ARRAY,
}

_SPOKEN_OF: Final = {
    ShapeKind.STRING: ("maxLength", "minLength", "pattern", "format"),
    ShapeKind.NUMBER: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    ShapeKind.OBJECT: (
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
    ),
    ShapeKind.ARRAY: (
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
    ),
}
_SINCE: Final = {
    "const": Dialect.DRAFT_6,
    "if": Dialect.DRAFT_7,
    "unevaluatedItems": Dialect.DRAFT_2019_09,
    "unevaluatedProperties": Dialect.DRAFT_2019_09,
    "dependentRequired": Dialect.DRAFT_2019_09,
    "dependentSchemas": Dialect.DRAFT_2019_09,
    "prefixItems": Dialect.DRAFT_2020_12,
}
_ALIASES_MAX: Final = 10_000


class Shapes:
    """The shapes of one schema and its references; each is made once, and is itself for ever."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: dict[int, Shape] = {}

    def of(self, thing: Shape | SchemaPlace) -> Shape:
        """Return the shape of `thing`, with `$ref`s followed."""
        if isinstance(thing, Shape):
            return thing
        place = self._followed(thing)
        key = id(place.schema)
        if key not in self._known:
            self._known[key] = self._make(place)
        return self._known[key]

    def _followed(self, place: SchemaPlace) -> SchemaPlace:
        for _ in range(_ALIASES_MAX):
            schema = place.schema
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return place
            if not place.draft.ref_stands_alone and any(_said(schema, place.draft)):
                return place
            place = self._documents.resolve(schema["$ref"], place)
        raise InvalidSchema(f"a chain of `$ref`s is longer than {_ALIASES_MAX:,}")

    def _make(self, place: SchemaPlace) -> Shape:
        if isinstance(place.schema, bool):
            return Shape(ShapeKind.ANYTHING if place.schema else ShapeKind.NOTHING, place)
        parts: list[Shape | SchemaPlace] = list(_parts(place))
        if not place.draft.ref_stands_alone:
            parts += self._documents.targets(place)
        if not parts:
            return Shape(ShapeKind.ANYTHING, place)
        if len(parts) == 1:
            return self.of(parts[0])
        return Shape(ShapeKind.COMBINATION, place, criterion="allOf", parts=tuple(parts))


def _parts(place: SchemaPlace) -> Iterator[Shape]:
    """Yield what the schema in `place` says itself."""
    for keyword in _said(place.schema, place.draft):
        yield from _part(keyword, place)


def _part(keyword: str, place: SchemaPlace) -> Iterator[Shape]:
    assert isinstance(place.schema, dict)
    value = place.schema.get(keyword)
    match keyword:
        case "type" if isinstance(value, list):
            alternatives = tuple(_of_type(name, place) for name in value)
            yield Shape(ShapeKind.COMBINATION, place, criterion="anyOf", parts=alternatives)
        case "type":
            yield _of_type(str(value), place)
        case "allOf" | "anyOf" | "oneOf" if isinstance(value, list):
            members = tuple(place.at(member) for member in value)
            yield Shape(ShapeKind.COMBINATION, place, criterion=keyword, parts=members)
        case _:
            yield Shape(ShapeKind(keyword), place)


def _said(schema: Any, draft: Dialect) -> Iterator[str]:
    """Yield the keywords that make a part each; the name of a kind if there is no `type`."""
    if "type" in schema:
        yield "type"
    else:
        for kind, keywords in _SPOKEN_OF.items():
            if any(name in schema and draft >= _SINCE.get(name, draft) for name in keywords):
                yield kind.value
    for keyword in ("enum", "const", "not", "allOf", "anyOf", "oneOf", "if"):
        if keyword in schema and draft >= _SINCE.get(keyword, draft):
            yield keyword


def _of_type(name: str, place: SchemaPlace) -> Shape:
    return Shape(_KINDS[name], place, integer=name == "integer")
