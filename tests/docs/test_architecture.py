"""The map in docs/ARCHITECTURE.md shows every room of the code, in an order that imports keep."""

import ast
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.test_tidy import imported

MAP = ROOT / "docs/ARCHITECTURE.md"
LAYERS = ["storage", "service", "riacho"]


def rooms(layer: str) -> list[str]:
    """Return the rooms that the map shows of a layer, line by line from the top."""
    [tree] = [block.text for block in blocks(MAP) if block.text.startswith("storage/")]
    [part] = [part for part in tree.split("\n\n") if part.startswith(f"{layer}/")]
    # Names and what they are for are two columns, with a gap between.
    lines = [line.strip().partition("  ")[0] for line in part.splitlines()[1:]]
    return [name for line in lines for name in line.split(", ")]


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[1]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_map_shows_every_room_once(layer: str) -> None:
    there = {room_of(path) for path in (ROOT / layer).rglob("*.py")} - {"__init__"}

    assert sorted(rooms(layer)) == sorted(there)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_room_imports_only_rooms_below_it(layer: str) -> None:
    place = {name: number for number, name in enumerate(rooms(layer))}
    for path in (ROOT / layer).rglob("*.py"):
        here = room_of(path)
        for name, at_load in imported(ast.parse(path.read_text())):
            package, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            if at_load and package == layer and there not in ("", here):
                assert place[here] < place[there], f"{path.relative_to(ROOT)} imports {name}"
