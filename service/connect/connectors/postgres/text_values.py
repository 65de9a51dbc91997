"""Values as PostgreSQL prints them (`datestyle` ISO, `intervalstyle` postgres), as numbers.

Python's dates end in the year 9999 and begin with 1; PostgreSQL's do not. So times are counted
here, in the Gregorian calendar on both sides. Infinity has the numbers that Debezium gives it. Bad
text raises `ValueError`.
"""

import re
from decimal import Decimal
from typing import Final

DAY_US: Final = 86_400_000_000

MONTH_US: Final = 2_629_800_000_000
"""A twelfth of 365.25 days, of intervals as a number."""

INFINITE_US: Final = 9_223_372_036_825_200_000
NEGATIVE_INFINITE_US: Final = -9_223_372_036_832_400_000
INFINITE_DAYS: Final = (1 << 31) - 1
NEGATIVE_INFINITE_DAYS: Final = -(1 << 31)

_UTC_LENGTH_MAX: Final = len("2026-01-31 12:00:00.123456+00")

_DATE: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?)?", re.ASCII
)
_INTERVAL: Final = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?"
    r"(?:([+-])?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?",
    re.ASCII,
)
_POINT: Final = re.compile(r"\(([^,()]+),([^,()]+)\)")
_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; the year 0 is 1 BC."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day; the inverse of `days_of`."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    return era * 400 + year_of_era + (month <= 2), month, day


def date_days(text: str) -> int:
    if text == "infinity":
        return INFINITE_DAYS
    if text == "-infinity":
        return NEGATIVE_INFINITE_DAYS
    is_bc = text.endswith(" BC")
    found = _DATE.fullmatch(text.removesuffix(" BC"))
    if found is None:
        raise ValueError(f"{text!r} is not a date")
    year = int(found[1])
    return days_of(1 - year if is_bc else year, int(found[2]), int(found[3]))


def time_us(text: str) -> int:
    """Return the microseconds of a time of day; of one with an offset, in UTC."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time")
    us = ((int(found[1]) * 60 + int(found[2])) * 60 + int(found[3])) * 1_000_000
    if found[4]:
        us += int(found[4].ljust(6, "0"))
    if found[5]:
        offset = (int(found[6]) * 60 + int(found[7] or 0)) * 60 + int(found[8] or 0)
        us += offset * (-1_000_000 if found[5] == "+" else 1_000_000)
    return us


def timestamp_us(text: str) -> int:
    """Return microseconds since 1970-01-01; of a time with an offset, in UTC."""
    if text == "infinity":
        return INFINITE_US
    if text == "-infinity":
        return NEGATIVE_INFINITE_US
    day, _, rest = text.partition(" ")
    time, _, era = rest.partition(" ")
    return date_days(f"{day} {era}" if era else day) * DAY_US + time_us(time)


def zoned_timestamp(text: str, digits: int = 6) -> str:
    """Return a time with an offset as ISO 8601 in UTC, with so many digits of the second."""
    if text.endswith("+00") and len(text) <= _UTC_LENGTH_MAX and text[4] == "-":
        # A year of four digits in UTC, which sessions have set: nothing needs to be counted.
        second = f"{text[:10]}T{text[11:19]}"
        return f"{second}.{text[20:-3].ljust(digits, '0')[:digits]}Z" if digits else f"{second}Z"
    if text in ("infinity", "-infinity"):
        return text
    days, us = divmod(timestamp_us(text), DAY_US)
    year, month, day = civil_of(days)
    years = f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"
    return f"{years}-{month:02}-{day:02}T{_clock(us)}{_fraction(us, digits)}Z"


def zoned_time(text: str) -> str:
    """Return a time of day with an offset as ISO 8601 in UTC."""
    us = time_us(text) % DAY_US
    return f"{_clock(us)}{_fraction(us, 6).rstrip('0').rstrip('.')}Z"


def _clock(us: int) -> str:
    minutes, seconds = divmod(us // 1_000_000, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def _fraction(us: int, digits: int) -> str:
    return f".{us % 1_000_000:06}"[: digits + 1] if digits else ""


def _interval(text: str) -> tuple[int, int, int]:
    """Return months, days and microseconds."""
    found = _INTERVAL.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"{text!r} is not an interval")
    us = 0
    if found[5]:
        us = ((int(found[5]) * 60 + int(found[6])) * 60 + int(found[7])) * 1_000_000
        us += int((found[8] or "0").ljust(6, "0"))
    months = int(found[1] or 0) * 12 + int(found[2] or 0)
    return months, int(found[3] or 0), -us if found[4] == "-" else us


def interval_us(text: str) -> int:
    """Return an interval in microseconds, its months as a twelfth of 365.25 days each."""
    months, days, us = _interval(text)
    return months * MONTH_US + days * DAY_US + us


def iso_interval(text: str) -> str:
    """Return an interval as ISO 8601, all of its units named: P1Y2M3DT4H5M6.78S."""
    months, days, us = _interval(text)
    sign = -1 if months < 0 else 1
    years, months = divmod(abs(months), 12)
    minus = "-" if us < 0 else ""
    minutes, rest = divmod(abs(us), 60_000_000)
    seconds = f"{Decimal(rest) / 1_000_000:f}"
    if "." in seconds:
        seconds = seconds.rstrip("0").rstrip(".")
    return (
        f"P{sign * years}Y{sign * months}M{days}D"
        f"T{minus}{minutes // 60}H{minus}{minutes % 60}M{minus}{seconds}S"
    )


def bytea(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytea that is not printed in hex: set bytea_output to hex")
    return bytes.fromhex(text[2:])


def bits(text: str) -> bytes:
    """Return bits as bytes, the lowest first, without zero bytes at the end."""
    number = int(text, 2) if text else 0
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def money(text: str) -> Decimal:
    """Return an amount as `lc_monetary` C prints it: -$1,234.56."""
    figures = re.sub(r"[^0-9.]", "", text)
    is_negative = "-" in text or text.startswith("(")
    return Decimal(f"-{figures}" if is_negative else figures)


def point(text: str) -> tuple[float, float]:
    found = _POINT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a point")
    return float(found[1]), float(found[2])


def hstore(text: str) -> dict[str, str | None]:
    out: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        found = _HSTORE.match(text, at)
        if found is None:
            raise ValueError("not an hstore")
        value = found[2]
        out[_unescaped(found[1])] = None if value is None else _unescaped(value)
        at = found.end()
    return out


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if "\\" in text else text


_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)|(\{)', re.DOTALL)


def array_elements(text: str, delimiter: str = ",") -> list[str | None]:
    """Return the elements of an array of one dimension; an inner array is None, as in Debezium."""
    if text.startswith("["):
        text = text.partition("=")[2]  # Bounds that do not begin with 1.
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("not an array")
    if text == "{}":
        return []
    out: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        value, at = _element(text, at, delimiter)
        out.append(value)
        if at < end and text[at] != delimiter:
            raise ValueError(f"an array with {text[at]!r} after an element")
        at += 1
    return out


def _element(text: str, at: int, delimiter: str) -> tuple[str | None, int]:
    if text[at] == "{":
        return None, _after_inner(text, at)
    if text[at] == '"':
        found = _ELEMENT.match(text, at)
        if found is None:
            raise ValueError("an element of an array does not end")
        return _unescaped(found[1]), found.end()
    end = at
    while end < len(text) - 1 and text[end] != delimiter:
        end += 1
    word = text[at:end]
    return (None if word == "NULL" else _unescaped(word)), end


def _after_inner(text: str, at: int) -> int:
    """Return where the inner array that begins at `at` has ended."""
    depth, quoted = 0, False
    while at < len(text):
        char = text[at]
        if quoted:
            at += char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return at + 1
        at += 1
    raise ValueError("an inner array does not end")
