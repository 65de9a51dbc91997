"""JSON pointers (RFC 6901), as configurations have them."""

from collections.abc import Sequence
from typing import Any, Final

_MISSING: Final = object()


def pointer_of(text: str) -> Sequence[str]:
    """Return the parts of a pointer; empty: all of the value. Raise `ValueError` in words."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer, such as /data/items")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def found_at(pointer: Sequence[str], value: Any) -> Any:
    """Return what is there. Raise `KeyError` if nothing is."""
    for part in pointer:
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit():
            value = value[int(part)] if int(part) < len(value) else _MISSING
        else:
            value = _MISSING
        if value is _MISSING:
            raise KeyError(part)
    return value
