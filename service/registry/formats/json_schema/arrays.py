"""Rules for arrays: items, tuples, and what is allowed after them."""

from typing import Any, NamedTuple

from service.registry.formats.json_schema.content import (
    compare_rest,
    compare_unevaluated,
    rest_of,
    unevaluated,
)
from service.registry.formats.json_schema.pairs import Pair
from service.registry.formats.json_schema.scalars import lower, upper
from service.registry.formats.json_schema.shapes import Shape, ShapeKind
from storage.schemas.json_schema.documents import SchemaPlace
from storage.schemas.json_schema.drafts import Dialect


class _Items(NamedTuple):
    every: SchemaPlace | None
    """What each item has to fit; None if anything does."""

    first: list[SchemaPlace]
    rest: SchemaPlace | bool
    """What is allowed after the first ones."""


def compare_arrays(pair: Pair) -> None:
    old, new = _items(pair.old), _items(pair.new)
    if new.every is not None:
        if old.every is not None:
            pair.between(old.every, new.every, "items")
        elif pair.kind_of_new(new.every) is not ShapeKind.ANYTHING:
            pair.broken("SCHEMA_ADDED", "items")
    _compare_tuples(pair, old, new)
    compare_rest(pair, old.rest, new.rest, "additionalItems", "ADDITIONAL_ITEMS")
    compare_unevaluated(pair, "unevaluatedItems", "UNEVALUATED_ITEMS")
    upper(pair, "maxItems", "MAX_ITEMS")
    lower(pair, "minItems", "MIN_ITEMS")
    if pair.keyword("uniqueItems")[1] is True and pair.keyword("uniqueItems")[0] is not True:
        pair.broken("UNIQUE_ITEMS_ADDED", "uniqueItems")
    (old_least, old_most), (new_least, new_most) = _contains(pair.old), _contains(pair.new)
    upper(pair, "maxContains", "MAX_CONTAINS", (old_most, new_most))
    lower(pair, "minContains", "MIN_CONTAINS", (old_least, new_least))


def _compare_tuples(pair: Pair, old: _Items, new: _Items) -> None:
    pair.spend(len(old.first) + len(new.first))
    for number in range(max(len(old.first), len(new.first))):
        path = f"items/{number}"
        if number >= len(new.first):
            _removed(pair, old.first[number], new, path)
        elif number >= len(old.first):
            _added(pair, new.first[number], old, path)
        else:
            pair.between(old.first[number], new.first[number], path)


def _removed(pair: Pair, old: SchemaPlace, new: _Items, path: str) -> None:
    rest = _rest(pair.new, new)
    if rest is False and pair.kind_of_old(old) is not ShapeKind.NOTHING:
        pair.broken("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    elif isinstance(rest, SchemaPlace) and not pair.between(old, rest, path):
        pair.broken("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def _added(pair: Pair, new: SchemaPlace, old: _Items, path: str) -> None:
    rest = _rest(pair.old, old)
    if rest is True and pair.kind_of_new(new) is not ShapeKind.ANYTHING:
        pair.broken("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path)
    elif isinstance(rest, SchemaPlace) and not pair.between(rest, new, path):
        pair.broken("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def _items(shape: Shape) -> _Items:
    """Return what a shape says of items; what tuples are called depends on the draft."""
    at, items = shape.place.at, shape.keywords.get("items")
    if shape.place.draft >= Dialect.DRAFT_2020_12:
        first: list[Any] = shape.keywords.get("prefixItems") or []
        rest = rest_of(shape, "items")
        if isinstance(rest, SchemaPlace) and not first:
            return _Items(rest, [], True)
        return _Items(None, [at(item) for item in first], rest)
    rest = rest_of(shape, "additionalItems")
    if isinstance(items, list):
        return _Items(None, [at(item) for item in items], rest)
    return _Items(None if items is None else at(items), [], rest)


def _rest(shape: Shape, items: _Items) -> SchemaPlace | bool:
    """Return what is allowed after the first items, if only `unevaluatedItems` says so, too."""
    if items.rest is not True:
        return items.rest
    other = unevaluated(shape, "unevaluatedItems")
    return True if other is None else other


def _contains(shape: Shape) -> tuple[Any, Any]:
    """Return how many items have to fit `contains`, and how many may."""
    if shape.place.draft < Dialect.DRAFT_2019_09 or "contains" not in shape.keywords:
        return None, None
    return shape.keywords.get("minContains", 1), shape.keywords.get("maxContains")
