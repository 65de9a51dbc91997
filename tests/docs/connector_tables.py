"""Tables of the keys of connectors, as their pages in `docs/connectors` have them.

    python -m tests.docs.connector_tables ObjectSinkConnector

prints what stands below `## Keys`.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

from service.connect.config.keys import REQUIRED, Key, KeyType
from service.connect.connectors.api import Plugin
from service.connect.connectors.catalog import plugin_of

PAGES: Final = {"objects.md": "ObjectSinkConnector", "mirror.md": "MirrorSourceConnector"}


def plugin(class_name: str) -> Plugin:
    found = plugin_of(class_name)
    assert found is not None, class_name
    return found


def keys_of(of: Plugin) -> Iterator[str]:
    """Yield the lines of the table of keys, then of those that have no effect."""
    yield "| key | default | what it says |"
    yield "|---|---|---|"
    for key in of.keys:
        yield f"| `{key.name}` | {_default(key)} | {_said(key.about)} |"
    yield ""
    yield "Accepted, and without effect here:"
    yield ""
    yield "| key | why |"
    yield "|---|---|"
    for name, why in of.ignored.items():
        yield f"| `{name}` | {_said(why)} |"


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "**required**"
    if key.type is KeyType.PASSWORD:
        return "a secret"
    text = _text(key.default)
    return f"`{text}`" if text else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value)


def _said(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print("\n".join(keys_of(plugin(sys.argv[1]))))  # noqa: T201
