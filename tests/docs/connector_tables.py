"""The tables of keys in `docs/connectors/`, as the definitions of the keys make them.

    python -m tests.docs.connector_tables HttpSink

writes the table for the heading "Keys of `HttpSink`"; `test_connectors.py` compares all of them.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from service.connect.config.keys import REQUIRED, Key
from service.connect.connectors.api import Plugin
from service.connect.connectors.catalog import plugin_of


def lines_of(plugin: Plugin) -> Iterator[str]:
    """Yield the lines of a table of the keys, and of those without effect."""
    yield from key_lines(plugin.keys)
    for name, why in plugin.ignored.items():
        yield _line(f"`{name}`", "", f"Has no effect: {why}.")


def key_lines(keys: Sequence[Key]) -> Iterator[str]:
    yield "| key | default | what it says |"
    yield "|---|---|---|"
    for key in keys:
        yield _line(f"`{key.name}`", _default(key), key.about)


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    return "" if key.default in (None, "", [], ()) else f"`{_text(key.default)}`"


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | tuple):
        return ",".join(map(_text, default))
    return str(default).replace("\n", "\\n")


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = plugin_of(name)
        assert found is not None, name
        sys.stdout.write("\n".join(lines_of(found)) + "\n")
