"""Numbers as Java converts them: integers wrap round, floats saturate, decimals lose their end."""

import math
import re
import struct
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from service.connect.data.errors import DataFault
from service.connect.data.logical import DIGITS_MAX
from service.connect.data.schema import Type

BITS: Final[Mapping[Type, int]] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}

_FLOAT: Final = struct.Struct("<f")
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def wrapped(number: int, kind: Type) -> int:
    """Return the lowest bits of a number."""
    bits = BITS[kind]
    half = 1 << (bits - 1)
    return ((number + half) & ((1 << bits) - 1)) - half


def saturated(number: float, kind: Type) -> int:
    """Return a float as Java casts it: to the nearest end of 32 or 64 bits, and NaN to 0."""
    if math.isnan(number):
        return 0
    bits = 64 if kind is Type.INT64 else 32
    end = 1 << (bits - 1)
    if number >= end:
        whole = end - 1
    elif number <= -end:
        whole = -end
    else:
        whole = int(number)
    return wrapped(whole, kind)


def whole_part(number: Decimal) -> int:
    """Return a decimal without what is behind its point; `DataFault` if it is too long."""
    if number.adjusted() > DIGITS_MAX:
        raise DataFault(f"a number of more than {DIGITS_MAX} digits")
    return int(number)


def as_float32(number: float) -> float:
    """Return the nearest float of 32 bits."""
    try:
        found: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return found


def decimal_in(text: str) -> Decimal | None:
    """Return the decimal that is written as `BigDecimal` reads it; None: it is none."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
