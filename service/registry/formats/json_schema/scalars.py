"""Rules for strings, numbers, enumerations and constants, and for limits of all kinds."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from service.registry.formats.json_schema.pairs import Pair
from service.registry.formats.json_schema.shapes import Shape
from storage.schemas.json_schema.drafts import Dialect
from storage.schemas.json_schema.reading import Number, key_of

_NESTED_STEPS: Final = 10
_EXPONENT_MAX: Final = 1_000
"""Beyond it a number is not written out to divide it."""


def upper(pair: Pair, keyword: str, rule: str, limits: tuple[Any, Any] | None = None) -> None:
    """Report an upper limit that was added, or became less; `limits` if not as in the schemas."""
    old, new = limits or pair.keyword(keyword)
    if new is not None and old is None:
        pair.broken(f"{rule}_ADDED", keyword)
    elif new is not None and new < old:
        pair.broken(f"{rule}_DECREASED", keyword)


def lower(pair: Pair, keyword: str, rule: str, limits: tuple[Any, Any] | None = None) -> None:
    """Report a lower limit that was added, or became more."""
    old, new = limits or pair.keyword(keyword)
    if new is not None and old is None:
        pair.broken(f"{rule}_ADDED", keyword)
    elif new is not None and new > old:
        pair.broken(f"{rule}_INCREASED", keyword)


def compare_strings(pair: Pair) -> None:
    upper(pair, "maxLength", "MAX_LENGTH")
    lower(pair, "minLength", "MIN_LENGTH")
    old, new = pair.keyword("pattern")
    if new is not None and old is None:
        pair.broken("PATTERN_ADDED", "pattern")
    elif new is not None and new != old:
        pair.broken("PATTERN_CHANGED", "pattern")


def compare_numbers(pair: Pair) -> None:
    upper(pair, "maximum", "MAXIMUM")
    lower(pair, "minimum", "MINIMUM")
    for keyword, rule, compare in (
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", upper),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", lower),
    ):
        compare(pair, keyword, rule, (_exclusive(pair.old, keyword), _exclusive(pair.new, keyword)))
    _compare_multiples(pair)
    if pair.new.integer and not pair.old.integer:
        pair.broken("TYPE_NARROWED")


def compare_enums(pair: Pair) -> None:
    old, new = pair.keyword("enum")
    pair.spend(sum(_NESTED_STEPS if isinstance(value, dict | list) else 1 for value in old + new))
    olds, news = {key_of(value) for value in old}, {key_of(value) for value in new}
    if not olds <= news:
        pair.broken("ENUM_ARRAY_NARROWED" if news < olds else "ENUM_ARRAY_CHANGED", "enum")


def compare_constants(pair: Pair) -> None:
    old, new = pair.keyword("const")
    if key_of(old) != key_of(new):
        pair.broken("ENUM_ARRAY_CHANGED", "const")


def _exclusive(shape: Shape, keyword: str) -> Number | None:
    """Return an exclusive limit; in draft 4 it is the other one, and this a switch."""
    limit = shape.keywords.get(keyword)
    if shape.place.draft is Dialect.DRAFT_4:
        limit = shape.keywords.get(keyword.removeprefix("exclusive").lower()) if limit else None
    return limit if isinstance(limit, Number) else None


def _compare_multiples(pair: Pair) -> None:
    old, new = pair.keyword("multipleOf")
    if new is None or old == new:
        return
    if old is None:
        pair.broken("MULTIPLE_OF_ADDED", "multipleOf")
    elif not _divides(new, old):
        rule = "MULTIPLE_OF_EXPANDED" if _divides(old, new) else "MULTIPLE_OF_CHANGED"
        pair.broken(rule, "multipleOf")


def _divides(divisor: Decimal, number: Decimal) -> bool:
    if any(abs(value.adjusted()) > _EXPONENT_MAX for value in (divisor, number)):
        return False
    return bool(divisor) and (Fraction(number) / Fraction(divisor)).denominator == 1
