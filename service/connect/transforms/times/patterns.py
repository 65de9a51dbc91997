r"""Dates and times as Java's `SimpleDateFormat` writes and reads them, in UTC and in English.

    y M L d D E u a H k K h m s S z Z X      'text' stands for itself, '' is an apostrophe

Refused: `G`, `Y`, `w`, `W`, `F`, which need the calendar of a country.

Reading is as lenient as Java's: month 13 is in the next year, a number takes all digits unless
another number follows at once, and what is behind the end of the pattern is ignored. Two digits of
a year for `yy` are 1969 to 2068, whatever the year is now; Java's window moves with the clock.
Unlike in Java, numbers have no sign, so `2024-02-29` is not of the pattern `yyyyMMdd`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from service.connect.data.errors import DataFault
from service.connect.data.logical import EPOCH, timestamp_from_ms

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DIGITS_MAX: Final = 18
"""Of a number that is read."""

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']", re.DOTALL)
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", re.ASCII)
_ZONE: Final = re.compile(r"(GMT|UTC|Z)\b", re.IGNORECASE)
_NUMERIC: Final = frozenset("yMLdDuHkKhmsS")
_REFUSED: Final = frozenset("GYwWF")


@dataclass(frozen=True, slots=True)
class _Part:
    letter: str
    """Empty: `text` stands for itself."""
    count: int = 0
    text: str = ""

    @property
    def is_number(self) -> bool:
        is_name = self.letter in ("M", "L") and self.count >= 3
        return self.letter in _NUMERIC and not is_name


@dataclass(slots=True)
class _Read:
    """What was read so far; `at` is where the text goes on."""

    at: int = 0
    found: dict[str, int] = field(default_factory=dict)


class DatePattern:
    """Raises `ValueError` for a pattern that is not understood."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = _parts(pattern)
        self._writers = [_writer(part) for part in self._parts]

    def format(self, when: datetime) -> str:
        """Return a time, which is in UTC."""
        return "".join([write(when) for write in self._writers])

    def parse(self, text: str) -> datetime:
        """Return the time in UTC; raise `DataFault` if the text is not of this pattern."""
        read = _Read()
        for number, part in enumerate(self._parts):
            following = self._parts[number + 1] if number + 1 < len(self._parts) else None
            if not _take(text, read, part, following):
                raise DataFault(
                    f"Could not parse timestamp: value ({text}) does not match pattern "
                    f"({self.pattern})"
                )
        return _time_of(read.found)


def _parts(pattern: str) -> Sequence[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            raise ValueError("has an apostrophe without a second one")
        at = found.end()
        token, letter = found[0], found[2]
        if letter is None:
            quoted = found[1]
            text = token if quoted is None else (quoted.replace("''", "'") or "'")
            parts.append(_Part("", text=text))
        elif letter in _REFUSED:
            raise ValueError(f"has the letter {letter!r}, which is not understood here")
        elif letter not in _WRITERS:
            raise ValueError(f"has the letter {letter!r}, which means nothing: quote it")
        elif letter == "X" and len(token) > 3:
            raise ValueError("has more than three X")
        else:
            parts.append(_Part(letter, len(token)))
    return parts


def _writer(part: _Part) -> Callable[[datetime], str]:
    if not part.letter:
        return lambda _: part.text
    make = _WRITERS[part.letter]
    count = part.count
    return lambda when: make(when, count)


def _number(read: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda when, count: str(read(when)).zfill(count)


def _year(when: datetime, count: int) -> str:
    return f"{when.year % 100:02}" if count == 2 else str(when.year).zfill(count)


def _month(when: datetime, count: int) -> str:
    if count < 3:
        return str(when.month).zfill(count)
    name = MONTHS[when.month - 1]
    return name if count >= 4 else name[:3]


def _day_name(when: datetime, count: int) -> str:
    name = DAYS[when.weekday()]
    return name if count >= 4 else name[:3]


_WRITERS: Final[Mapping[str, Callable[[datetime, int], str]]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "d": _number(lambda when: when.day),
    "D": _number(lambda when: when.timetuple().tm_yday),
    "E": _day_name,
    "u": _number(lambda when: when.isoweekday()),
    "a": lambda when, _: "AM" if when.hour < 12 else "PM",
    "H": _number(lambda when: when.hour),
    "k": _number(lambda when: when.hour or 24),
    "K": _number(lambda when: when.hour % 12),
    "h": _number(lambda when: when.hour % 12 or 12),
    "m": _number(lambda when: when.minute),
    "s": _number(lambda when: when.second),
    "S": _number(lambda when: when.microsecond // 1000),
    "z": lambda _, count: "Coordinated Universal Time" if count >= 4 else "UTC",
    "Z": lambda _, __: "+0000",
    "X": lambda _, __: "Z",
}


def _take(text: str, read: _Read, part: _Part, following: _Part | None) -> bool:
    """Read one part of the pattern; False: the text does not have it here."""
    if not part.letter:
        matches = text.startswith(part.text, read.at)
        read.at += len(part.text)
        return matches
    while text[read.at : read.at + 1] in (" ", "\t"):
        read.at += 1
    if part.is_number:
        return _take_number(text, read, part, following)
    if part.letter in "zZX":
        return _take_zone(text, read)
    names = {"E": DAYS, "a": ("AM", "PM")}.get(part.letter, MONTHS)
    return _take_name(text, read, part.letter, names)


def _take_number(text: str, read: _Read, part: _Part, following: _Part | None) -> bool:
    found = _DIGITS.match(text, read.at)
    if found is None:
        return False
    digits = found[0]
    if following is not None and following.is_number:
        # Numbers without anything between have as many digits as the pattern has letters.
        if len(digits) < part.count:
            return False
        digits = digits[: part.count]
    if len(digits) > DIGITS_MAX:
        return False
    number = int(digits)
    if part.letter == "y" and part.count <= 2 and len(digits) == 2:
        number += 1900 if number >= 69 else 2000
    read.found["M" if part.letter == "L" else part.letter] = number
    read.at += len(digits)
    return True


def _take_name(text: str, read: _Read, letter: str, names: Sequence[str]) -> bool:
    rest = text[read.at : read.at + 9].lower()
    for number, name in enumerate(names):
        for form in (name, name[:3]):
            if rest.startswith(form.lower()):
                read.at += len(form)
                read.found["M" if letter in "ML" else letter] = number + (letter in "ML")
                return True
    return False


def _take_zone(text: str, read: _Read) -> bool:
    offset = _OFFSET.match(text, read.at)
    if offset is not None:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        read.found["Z"] = (hours * 60 + minutes) * (-1 if offset[1] == "-" else 1)
        read.at = offset.end()
        return hours < 24 and minutes < 60
    named = _ZONE.match(text, read.at)
    if named is None:
        return False
    read.found["Z"] = 0
    read.at = named.end()
    return True


def _time_of(found: Mapping[str, int]) -> datetime:
    """Return the time that these fields mean, those beyond their range counted on."""
    get = found.get
    years, month = divmod(get("M", 1) - 1, 12)
    if "D" in found and "d" not in found:
        years, month = 0, 0
    year = get("y", 1970) + years
    if not 1 <= year <= 9999:
        raise DataFault(f"the year {year} is not one of 1 to 9999")
    first = EPOCH.replace(year=year, month=month + 1)
    days = get("d", get("D", 1)) - 1
    minutes = _hour(found) * 60 + get("m", 0) - get("Z", 0)
    ms = ((days * 24 * 60 + minutes) * 60 + get("s", 0)) * 1000 + get("S", 0)
    return timestamp_from_ms((first - EPOCH) // _MS + ms)


_MS: Final[Any] = timedelta(milliseconds=1)


def _hour(found: Mapping[str, int]) -> int:
    if "H" in found:
        return found["H"]
    if "k" in found:
        return 0 if found["k"] == 24 else found["k"]
    half = found.get("K", found.get("h", 0))
    if "K" not in found and half == 12:
        half = 0
    return half + 12 * found.get("a", 0)
