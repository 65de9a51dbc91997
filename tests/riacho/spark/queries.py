"""Streaming queries on a machine that may be busy."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BUSY_MAX = 10


def is_too_busy(error: BaseException | None) -> bool:
    """Whether a worker did not start in the ten seconds that Spark gives it, whatever is set."""
    return error is not None and "failed to connect back" in str(error)


def ended(start: "Callable[[int], StreamingQuery]") -> "StreamingQuery":
    """Start a query and wait for its end; start it again where the machine was too busy."""
    from pyspark.errors import StreamingQueryException

    for attempt in range(BUSY_MAX):
        query = start(attempt)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not is_too_busy(error):
                raise
        else:
            return query
    raise AssertionError("the machine is too busy for Spark")
