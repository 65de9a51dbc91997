"""Subscriptions by pattern: regular expressions with bounded matching time.

A pattern comes from a client and is matched with every topic on the event loop. With Python's `re`
`(a+)+b` would keep a gateway busy for hours. RE2 takes time proportional to the text, whatever
the pattern. It refuses look-around and back-references, which cannot be matched in that time.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from storage.errors import InvalidRequest

PATTERN_CHARS_MAX: Final = 1_000


def check_pattern(pattern: str) -> None:
    """Raise `InvalidRequest` unless `pattern` can be matched."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidRequest(
            f"topics_pattern: {len(pattern)} characters, the limit is {PATTERN_CHARS_MAX}"
        )
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        [reason] = error.args
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise InvalidRequest(
            f"topics_pattern: not a regular expression as RE2 takes it: {text}"
        ) from None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` that `pattern` matches as a whole."""
    compiled = _compiled(pattern)
    return [name for name in names if compiled.fullmatch(name)]


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> Any:
    # Imported here so that only groups with patterns pay for loading it.
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
