"""Defaults of columns as schemas have them: literals, as Debezium knows them.

A default that PostgreSQL computes, such as `nextval(…)` or `now()`, becomes the zero of a required
field, and is left out of an optional one.
"""

import re
from typing import Any, Final

from service.connect.connectors.postgres.columns import TypeMeaning
from service.connect.data.schema import UNSET, Type

_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'(?:::[\w .()\"]+)?", re.DOTALL)
_NUMBER: Final = re.compile(r"\(?(-?\d+(?:\.\d+)?)\)?(?:::[\w .()\"]+)?", re.ASCII)
_WITHOUT: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_NUMBERS: Final = frozenset({Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64})
_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_ZONED_ZERO: Final = "1970-01-01T00:00:00.000000Z"
_NO_DEFAULTS: Final = frozenset({"io.debezium.data.Enum", "io.debezium.data.Bits"})


def default_of(expression: str | None, meaning: TypeMeaning, *, is_required: bool) -> Any:
    """Return the default of a column with this expression, or `UNSET`."""
    schema = meaning.schema
    if expression is None or schema.type in _WITHOUT or schema.name in _NO_DEFAULTS:
        return UNSET
    literal = _literal(expression)
    if literal is not None:
        try:
            value = meaning.parse(literal)
        except (ValueError, ArithmeticError):
            return UNSET
        return UNSET if value is None else value
    if not is_required or expression.upper().startswith("NULL"):
        return UNSET
    if schema.name == _ZONED:
        return _ZONED_ZERO
    return meaning.fallback if schema.type in _NUMBERS else UNSET


def _literal(expression: str) -> str | None:
    if expression in ("true", "false"):
        return expression[0]
    quoted = _QUOTED.fullmatch(expression)
    if quoted is not None:
        return quoted[1].replace("''", "'")
    number = _NUMBER.fullmatch(expression)
    return None if number is None else number[1]
