"""What the value of a setting may be: checked once, and stored as the text Kafka would show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
DIGITS_MAX: Final = 20

Parse = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Setting:
    default: str
    parse: Parse
    about: str
    fixed: bool = False
    """Can be chosen when the topic is created, and not changed afterwards."""
    has_effect: bool = True
    """False: known to Kafka and kept for its tools, and of no meaning here."""


def integer(low: int, high: int = INT64_MAX) -> Parse:
    def parse(text: str) -> str:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > DIGITS_MAX:
            raise ValueError(f"must be a whole number, not {text!r}")
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}, not {number}")
        return str(number)

    return parse


def ratio(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"must be a number from 0 to 1, not {text!r}") from None
    if not 0 <= number <= 1:
        raise ValueError(f"must be from 0 to 1, not {text}")
    return text


def choice(*allowed: str) -> Parse:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {text!r}")
        return text

    return parse
