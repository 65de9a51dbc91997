"""Turns filters that Spark pushes down into bounds on what is read.

Topic, partition and offset are known before reading, so filters on them are fully applied here.
Timestamps are known only per stored range: such a filter saves reading, and Spark still checks
every record.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from riacho.spark.read.ranges import Bounds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def pushed(filters: Iterable[Filter], bounds: Bounds) -> tuple[Bounds, list[Filter]]:
    """Return `bounds` narrowed by `filters`, and the filters that Spark must still apply."""
    left = []
    for each in filters:
        narrowed, is_exact = _narrowed(each, bounds)
        bounds = narrowed
        if not is_exact:
            left.append(each)
    return bounds, left


def _narrowed(each: Filter, bounds: Bounds) -> tuple[Bounds, bool]:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    narrow = _BY_COLUMN.get(path[0]) if len(path) == 1 else None
    if isinstance(each, IsNotNull):
        return bounds, len(path) == 1 and path[0] in _NEVER_NULL
    value = getattr(each, "value", None)
    if narrow is None or value is None:
        return bounds, False
    return narrow(each, value, bounds)


def _topic(each: Filter, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    names = _values(each, value, str)
    if names is None:
        return bounds, False
    kept = names if bounds.topics is None else names & bounds.topics
    return replace(bounds, topics=frozenset(kept)), True


def _partition(each: Filter, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    numbers = _values(each, value, int)
    if numbers is not None:
        kept = numbers if bounds.partitions is None else numbers & bounds.partitions
        return replace(bounds, partitions=frozenset(kept)), True
    span = _span(each, value)
    if span is None:
        return bounds, False
    low, high = span
    return replace(
        bounds,
        partition_min=bounds.partition_min if low is None else max(bounds.partition_min, low),
        partition_max=bounds.partition_max if high is None else min(bounds.partition_max, high),
    ), True


def _offset(each: Filter, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    numbers = _values(each, value, int)
    if numbers is not None:
        if not numbers:
            return replace(bounds, start=0, end=0), True
        inside = bounds.within(start=min(numbers), end=max(numbers) + 1)
        # If the offsets are not contiguous, Spark removes those in between.
        return inside, max(numbers) - min(numbers) + 1 == len(numbers)
    span = _span(each, value)
    if span is None:
        return bounds, False
    low, high = span
    if low is not None:
        bounds = bounds.within(start=low)
    if high is not None:
        bounds = bounds.within(end=high + 1)
    return bounds, True


def _timestamp(each: Filter, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    moments = [*value] if isinstance(each, In) else [value]
    if not moments or not all(isinstance(moment, datetime) for moment in moments):
        return bounds, False
    low, high = _ms(min(moments)), _ms(max(moments))
    if not isinstance(each, LessThan | LessThanOrEqual):
        bounds = replace(bounds, min_ms=max(bounds.min_ms, low))
    if not isinstance(each, GreaterThan | GreaterThanOrEqual):
        bounds = replace(bounds, max_ms=min(bounds.max_ms, high))
    return bounds, False


_BY_COLUMN: Final[dict[str, Callable[[Filter, Any, Bounds], tuple[Bounds, bool]]]] = {
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
}


def _values(each: Filter, value: Any, kind: type) -> set[Any] | None:
    """Return the allowed values if the filter lists them, else None."""
    if isinstance(each, EqualTo | EqualNullSafe):
        values = [value]
    elif isinstance(each, In):
        values = [one for one in value if one is not None]
    else:
        return None
    return set(values) if all(type(one) is kind for one in values) else None


def _span(each: Filter, value: Any) -> tuple[int | None, int | None] | None:
    """Return the smallest and the largest allowed number, None for no limit."""
    if type(value) is not int:
        return None
    if isinstance(each, GreaterThan):
        return value + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return value, None
    if isinstance(each, LessThan):
        return None, value - 1
    if isinstance(each, LessThanOrEqual):
        return None, value
    return None


def _ms(moment: datetime) -> int:
    """Return the moment in milliseconds, rounded down; UTC if it has no time zone."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND
