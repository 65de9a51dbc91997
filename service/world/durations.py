"""Lengths of time as people write them: 500ms, 30s, 5m, 1h, 2d."""

import re
from typing import Final

_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_FORM: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def seconds(text: str) -> float:
    """Return `text` in seconds. Raises `ValueError` that shows the accepted forms."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration; write it like 30s, 5m, 1h or 2d")
    return int(found[1]) * _UNITS_S[found[2]]
