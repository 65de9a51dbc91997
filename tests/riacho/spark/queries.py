"""Streaming queries on a machine that may be busy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BUSY_MAX = 10


def is_too_busy(error: BaseException | None) -> bool:
    """Whether a worker did not start in the ten seconds that Spark gives it, whatever is set."""
    return error is not None and "failed to connect back" in str(error)


@contextmanager
def suppress_if_too_busy() -> Iterator[None]:
    """Suppress the error of a query whose worker did not start in time."""
    from pyspark.errors import StreamingQueryException

    try:
        yield
    except StreamingQueryException as error:
        if not is_too_busy(error):
            raise


def ended(start: "Callable[[int], StreamingQuery]") -> "StreamingQuery":
    """Start a query and wait for its end; start it again where the machine was too busy."""
    for attempt in range(BUSY_MAX):
        query = start(attempt)
        with suppress_if_too_busy():
            query.awaitTermination()
            return query
    raise AssertionError("the machine is too busy for Spark")
