"""What changed between two schemas, for people: places, and what is there before and after. Pure.

In JSON a place is a path of names. Items of a list that have names are compared by name, so that a
field that was added moves no other. Text that is not JSON is compared line by line.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from riacho.schemas.values import SchemaText

_NAMES: Final = ("name", "symbol", "title")
_ABSENT: Final = object()
_UNCHANGED_LINES: Final = 2


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Something that is in one schema and not, or differently, in another."""

    kind: Literal["added", "removed", "changed", "moved", "lines"]
    path: str
    before: str = ""
    after: str = ""


def changes(before: SchemaText, after: SchemaText) -> list[SchemaChange]:
    """Return what changed; empty: nothing but spaces."""
    found: list[SchemaChange] = []
    if before.kind != after.kind:
        found.append(SchemaChange("changed", "type of schema", before.kind, after.kind))
    named = [{each.name: f"{each.subject}:{each.version}" for each in one.references}
             for one in (before, after)]  # fmt: skip
    found += _between(named[0], named[1], "references")
    if before.kind == after.kind != "PROTOBUF":
        found += _between(json.loads(before.text), json.loads(after.text), "")
    else:
        found += _lines(before.text, after.text)
    return found


def _lines(before: str, after: str) -> Iterator[SchemaChange]:
    told = difflib.unified_diff(
        before.splitlines(), after.splitlines(), lineterm="", n=_UNCHANGED_LINES
    )
    for line in list(told)[2:]:
        if line.startswith("@@"):
            continue
        yield SchemaChange("lines", "", line)


def _between(before: Any, after: Any, path: str) -> Iterator[SchemaChange]:
    if before == after and type(before) is type(after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _between_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _between_lists(before, after, path)
    else:
        yield SchemaChange("changed", path, _short(before), _short(after))


def _between_objects(
    before: dict[str, Any], after: dict[str, Any], path: str
) -> Iterator[SchemaChange]:
    for name in [*before, *(name for name in after if name not in before)]:
        place = f"{path}/{name}"
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if new is _ABSENT:
            yield SchemaChange("removed", place, _short(old))
        elif old is _ABSENT:
            yield SchemaChange("added", place, "", _short(new))
        else:
            yield from _between(old, new, place)


def _between_lists(before: list[Any], after: list[Any], path: str) -> Iterator[SchemaChange]:
    old, new = _named(before), _named(after)
    if old is None or new is None:
        # Positions: of what has no name, none is a better guess.
        old = {str(i): each for i, each in enumerate(before)}
        new = {str(i): each for i, each in enumerate(after)}
    yield from _between_objects(old, new, path)
    kept = [name for name in old if name in new]
    if kept != [name for name in new if name in old]:
        yield SchemaChange("moved", path, ", ".join(old), ", ".join(new))


def _named(items: list[Any]) -> dict[str, Any] | None:
    """Return items by their names; None: they have none, or not each its own."""
    found = {_name(each): each for each in items}
    return found if len(found) == len(items) and "" not in found else None


def _name(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        # A type of a union without a name is known by what it is: array, map, bytes.
        return next((str(item[each]) for each in (*_NAMES, "type") if each in item), "")
    return ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"
