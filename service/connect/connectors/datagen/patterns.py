r"""Text that matches a pattern, as far as patterns are understood here.

That is: characters, `.`, `\d`, `\w`, classes such as `[a-f0-9]`, each with `{n}`, `{m,n}`, `?`, `+`
or `*`. Groups, alternatives and anchors are refused.
"""

import re
import string
from collections.abc import Callable
from random import Random
from typing import Final

from service.connect.connectors.datagen.makers import LETTERS

PATTERN_CHARS_MAX: Final = 1000
REPEATS_MAX: Final = 1000
_MANY: Final = 8
"""The most that `+` and `*` repeat."""

_PART: Final = re.compile(
    r"(?P<of>\\.|\[(?P<class>(?:\\.|[^\]\\^])(?:\\.|[^\]\\])*)\]|[^\\\[\](){}|^$?*+])"
    r"(?P<times>\{\d{1,4}(?:,\d{1,4})?\}|[?+*])?",
    re.DOTALL,
)
_CLASSES: Final = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": " ",
    ".": string.ascii_letters + string.digits,
}
_TIMES: Final = {None: (1, 1), "?": (0, 1), "+": (1, _MANY), "*": (0, _MANY)}


def text_like(pattern: str) -> Callable[[Random], str]:
    """Return what makes such texts. Raise `ValueError` in words."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"a regex has more than {PATTERN_CHARS_MAX} characters")
    parts: list[tuple[str, int, int]] = []
    at = 0
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            raise ValueError(f"the regex {pattern!r} has at {at} what is not understood here")
        low, high = _times(match["times"])
        parts.append((_letters(match), low, high))
        at = match.end()
    if sum(high for _, _, high in parts) > REPEATS_MAX:
        raise ValueError(f"the regex {pattern!r} makes more than {REPEATS_MAX} characters")

    def make(random: Random) -> str:
        return "".join(
            letters[int(random.random() * len(letters))]
            for letters, low, high in parts
            for _ in range(low + int(random.random() * (high - low + 1)))
        )

    return make


def _times(text: str | None) -> tuple[int, int]:
    if text is None or not text.startswith("{"):
        return _TIMES[text]
    low, _, high = text[1:-1].partition(",")
    span = int(low), int(high or low)
    if span[0] > span[1]:
        raise ValueError(f"{text} of a regex has its ends the wrong way round")
    return span


def _letters(match: re.Match[str]) -> str:
    inside = match["class"]
    if inside is None:
        of = match["of"]
        return _CLASSES[of] if of == "." else _escaped(of) if of[0] == "\\" else of
    found: list[str] = []
    tokens = re.findall(r"\\.|.", inside, re.DOTALL)
    while tokens:
        token = tokens.pop(0)
        if len(tokens) >= 2 and tokens[0] == "-":
            tokens.pop(0)
            low, high = token[-1], tokens.pop(0)[-1]
            found += [chr(code) for code in range(ord(low), min(ord(high), 0x7E) + 1)]
        else:
            found += _escaped(token) if token[0] == "\\" else token
    return "".join(found) or LETTERS


def _escaped(token: str) -> str:
    letter = token[1]
    if letter.isalnum() and letter not in _CLASSES:
        raise ValueError(f"{token} of a regex is not understood here")
    return _CLASSES.get(letter, letter) if letter != "." else "."
