"""Rules for objects: properties, required ones, dependencies, and what is allowed beside them."""

from typing import Any

from service.registry.formats.json_schema.content import (
    compare_rest,
    compare_unevaluated,
    rest_of,
    schemas_by_name,
    unevaluated,
)
from service.registry.formats.json_schema.pairs import Pair
from service.registry.formats.json_schema.scalars import lower, upper
from service.registry.formats.json_schema.shapes import Shape, ShapeKind
from storage.schemas.json_schema.documents import SchemaPlace
from storage.schemas.json_schema.engine import finds


def compare_objects(pair: Pair) -> None:
    _compare_properties(pair)
    _compare_dependencies(pair)
    compare_rest(
        pair,
        rest_of(pair.old, "additionalProperties"),
        rest_of(pair.new, "additionalProperties"),
        "additionalProperties",
        "ADDITIONAL_PROPERTIES",
    )
    compare_unevaluated(pair, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    upper(pair, "maxProperties", "MAX_PROPERTIES")
    lower(pair, "minProperties", "MIN_PROPERTIES")


def _compare_properties(pair: Pair) -> None:
    olds, news = (schemas_by_name(shape, "properties") for shape in (pair.old, pair.new))
    pair.spend(len(olds) + len(news))
    required = [set(shape.keywords.get("required") or ()) for shape in (pair.old, pair.new)]
    for name in olds.keys() & news.keys():
        if name in required[1] - required[0] and not _has_default(news[name]):
            pair.broken("REQUIRED_ATTRIBUTE_ADDED", f"required/{name}")
    for name in dict.fromkeys((*olds, *news)):
        path = f"properties/{name}"
        if name not in news:
            _removed(pair, name, pair.old.place.at(olds[name]), path)
        elif name not in olds:
            _added(pair, name, pair.new.place.at(news[name]), path, name in required[1])
        else:
            old, new = pair.old.place.at(olds[name]), pair.new.place.at(news[name])
            pair.between(old, new, path)


def _removed(pair: Pair, name: str, old: SchemaPlace, path: str) -> None:
    if _is_open(pair.new):
        return
    rest = _rest_for(pair, pair.new, name)
    if rest is None:
        if pair.kind_of_old(old) is not ShapeKind.NOTHING:
            pair.broken("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    elif not pair.between(old, rest, path):
        pair.broken("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def _added(pair: Pair, name: str, new: SchemaPlace, path: str, required: bool) -> None:
    default = _has_default(new.schema)
    if _is_open(pair.old):
        if pair.kind_of_new(new) is ShapeKind.ANYTHING:
            return
        rule = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        if required:
            rule = "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        if required and default:
            rule = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"
        pair.broken(rule, path)
        return
    rest = _rest_for(pair, pair.old, name)
    if rest is not None and not pair.between(rest, new, path):
        pair.broken("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    if required and not default:
        pair.broken("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)


def _compare_dependencies(pair: Pair) -> None:
    old_names, old_schemas = _dependencies(pair.old)
    new_names, new_schemas = _dependencies(pair.new)
    pair.spend(len(new_names) + len(new_schemas))
    for name, new in new_names.items():
        path = f"dependencies/{name}"
        if (old := old_names.get(name)) is None:
            pair.broken("DEPENDENCY_ARRAY_ADDED", path)
        elif not new <= old:
            rule = "DEPENDENCY_ARRAY_EXTENDED" if new > old else "DEPENDENCY_ARRAY_CHANGED"
            pair.broken(rule, path)
    for name, schema in new_schemas.items():
        path = f"dependencies/{name}"
        if name not in old_schemas:
            pair.broken("DEPENDENCY_SCHEMA_ADDED", path)
        else:
            old_place = pair.old.place.at(old_schemas[name])
            pair.between(old_place, pair.new.place.at(schema), path)


def _dependencies(shape: Shape) -> tuple[dict[str, set[str]], dict[str, Any]]:
    """Return which properties each one needs beside it, and which schema each one brings."""
    both = {
        **schemas_by_name(shape, "dependencies"),
        **schemas_by_name(shape, "dependentRequired"),
    }
    names = {name: set(value) for name, value in both.items() if isinstance(value, list)}
    schemas = {name: value for name, value in both.items() if not isinstance(value, list)}
    return names, {**schemas, **schemas_by_name(shape, "dependentSchemas")}


def _is_open(shape: Shape) -> bool:
    return (
        rest_of(shape, "additionalProperties") is True
        and not schemas_by_name(shape, "patternProperties")
        and unevaluated(shape, "unevaluatedProperties") in (None, True)
    )


def _rest_for(pair: Pair, shape: Shape, name: str) -> SchemaPlace | None:
    """Return what a shape that is not open demands of a property it does not name.

    None if it allows no such property.
    """
    patterns = schemas_by_name(shape, "patternProperties")
    pair.spend(len(patterns))
    for pattern, schema in patterns.items():
        if finds(pattern, name):
            return shape.place.at(schema)
    rest = rest_of(shape, "additionalProperties")
    if rest is True:
        rest = unevaluated(shape, "unevaluatedProperties") or False
    return rest if isinstance(rest, SchemaPlace) else None


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema
