"""Patterns of dates as Java and Joda have them, like `'year'=YYYY/'month'=MM`."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

Part: TypeAlias = Callable[[datetime], str]

_TOKENS: Final = re.compile(
    r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>[^A-Za-z'])"
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "h": lambda at: (at.hour - 1) % 12 + 1,
    "K": lambda at: at.hour % 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "e": lambda at: at.isoweekday(),
    "w": lambda at: at.isocalendar().week,
    "x": lambda at: at.isocalendar().year,
}
_NAMES: Final = 3
"""This many letters of a month mean its name, as do more."""


def pattern_of(text: str) -> Callable[[datetime], str]:
    """Return what formats times by a pattern; names are English. Raises `ValueError`."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        found = _TOKENS.match(text, position)
        if found is None:
            raise ValueError(f"{text!r} has a quote that does not end")
        position = found.end()
        parts.append(_part(found))
    return lambda at: "".join(part(at) for part in parts)


def has_names(text: str) -> bool:
    """Return whether a pattern has names of days or months, which depend on the language."""
    unquoted = re.sub(r"'[^']*'", "", text)
    return "MMM" in unquoted or "E" in unquoted


def _part(found: "re.Match[str]") -> Part:
    quoted, other, letters = found["quoted"], found["other"], found["letters"]
    if letters is None:
        literal = other if quoted is None else (quoted.replace("''", "'") or "'")
        return lambda _: literal
    letter, count = letters[0], len(letters)
    if letter in "yYu":
        return _year(count)
    if letter == "M":
        return _month(count)
    if letter == "E":
        return lambda at: _named(_DAYS, at.weekday(), count)
    if letter == "a":
        return lambda at: "AM" if at.hour < 12 else "PM"
    if letter == "S":
        return lambda at: f"{at.microsecond:06}"[:count].ljust(count, "0")
    number = _NUMBERS.get(letter)
    if number is None:
        raise ValueError(f"{letters!r} is not a part of a time that is known here")
    return lambda at: str(number(at)).zfill(count)


def _year(count: int) -> Part:
    if count == 2:
        return lambda at: f"{at.year % 100:02}"
    return lambda at: str(at.year).zfill(count)


def _month(count: int) -> Part:
    if count >= _NAMES:
        return lambda at: _named(_MONTHS, at.month - 1, count)
    return lambda at: str(at.month).zfill(count)


def _named(names: Sequence[str], number: int, count: int) -> str:
    return names[number] if count > _NAMES else names[number][:_NAMES]
