"""The rules for shapes of any kind: whether the new one reads all that the old one writes."""

from collections.abc import Callable
from typing import Final

from service.registry.formats.form import Incompatibility
from service.registry.formats.json_schema.arrays import compare_arrays
from service.registry.formats.json_schema.combinations import compare_combinations
from service.registry.formats.json_schema.objects import compare_objects
from service.registry.formats.json_schema.pairs import Comparison, Pair
from service.registry.formats.json_schema.rules import MEANINGS
from service.registry.formats.json_schema.scalars import (
    compare_constants,
    compare_enums,
    compare_numbers,
    compare_strings,
)
from service.registry.formats.json_schema.shapes import ShapeKind, Shapes
from storage.schemas.json_schema.documents import Documents


def unreadable(old: Documents, new: Documents) -> list[Incompatibility]:
    """Return why data of `old` cannot be read with `new`: nothing if it can.

    Raises `InvalidSchema` if it would take too long to find out.
    """
    found = Comparison(compare).differences(Shapes(old), old.root, Shapes(new), new.root)
    return [
        Incompatibility(kind=rule, path=f"#/{path}", message=f"{MEANINGS[rule]} (at #/{path})")
        for rule, path in found
    ]


def compare(pair: Pair) -> None:
    """Report to `pair` which rules are broken between its shapes."""
    old, new = pair.old, pair.new
    if old.kind is not new.kind:
        if ShapeKind.COMBINATION in (old.kind, new.kind) and _one_part_fits(pair):
            return
        if (
            old.kind is not ShapeKind.NOTHING
            and new.kind is not ShapeKind.ANYTHING
            and not _bytes(pair)
        ):
            pair.broken("TYPE_CHANGED")
        return
    if old.kind in _RULES:
        _RULES[old.kind](pair)


def _one_part_fits(pair: Pair) -> bool:
    """Whether one part is enough: of `allOf` if that writes, of the others if they read."""
    old, new = pair.old, pair.new
    if new.kind is ShapeKind.COMBINATION:
        enough = len(new.parts) == 1 or new.criterion != "allOf"
        return enough and any(pair.fits(old, part) for part in new.parts)
    enough = len(old.parts) == 1 or old.criterion == "allOf"
    return enough and any(pair.fits(part, new) for part in old.parts)


def _bytes(pair: Pair) -> bool:
    """Whether both are bytes to Kafka Connect, which has written decimals in two ways."""
    return pair.keyword("connect.type") == ("bytes", "bytes")


def _compare_not(pair: Pair) -> None:
    old, new = pair.keyword("not")
    if not pair.fits_reversed(pair.old.place.at(old), pair.new.place.at(new)):
        pair.broken("NOT_TYPE_EXTENDED", "not")


_RULES: Final[dict[ShapeKind, Callable[[Pair], None]]] = {
    ShapeKind.STRING: compare_strings,
    ShapeKind.NUMBER: compare_numbers,
    ShapeKind.ENUM: compare_enums,
    ShapeKind.CONST: compare_constants,
    ShapeKind.OBJECT: compare_objects,
    ShapeKind.ARRAY: compare_arrays,
    ShapeKind.COMBINATION: compare_combinations,
    ShapeKind.NOT: _compare_not,
}
