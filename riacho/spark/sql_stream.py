"""A query that goes on: its results are written to a topic, each once.

    topics ──▶ the query ──▶ key, value as JSON ──▶ the sink of this package ──▶ topic

In the mode "update" Spark hands changed rows to a function instead, since Python sinks have no
such mode; it writes each batch by the id of the query, which is in the checkpoint, and the id of
the batch.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.errors import PySparkException

from riacho.errors import new_error
from riacho.spark.sql_errors import BadQuery, explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

KEYS: Final = ("_key", "key")
POLL_S: Final = 0.5

Mode = Literal["append", "update", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuous:
    url: str
    topic: str
    checkpoint: str
    name: str
    mode: Mode
    available_now: bool
    every: str | None


class QueryFailed(BadQuery):
    """The query ran, and then it did not."""

    code = "QUERY_FAILED"


def as_records(result: "DataFrame") -> "DataFrame":
    """Return key and value of each row: `_key` or `key` if there is one, the rest as JSON.

    Raises `BadQuery` if nothing is left for the value.
    """
    from pyspark.sql import functions as f

    names = result.columns
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise new_error(BadQuery, f"two columns are called {twice!r}; rename one with AS")
    key = next((name for name in KEYS if name in names), None)
    others = [f.col(f"`{name.replace('`', '``')}`") for name in names if name != key]
    if not others:
        raise new_error(BadQuery, "nothing is selected for the value; select more than the key")
    value = f.to_json(f.struct(*others), {"ignoreNullFields": "false"}).alias("value")
    if key is None:
        return result.select(value)
    kind = dict(result.dtypes)[key]
    column = f.col(key)
    is_nested = kind.startswith(("struct", "array", "map"))
    text = f.to_json(column) if is_nested else column.cast("string")
    return result.select((column if kind == "binary" else text).alias("key"), value)


def start(result: "DataFrame", wanted: Continuous) -> "StreamingQuery":
    """Start the query; raise `BadQuery` if it cannot be one that goes on."""
    if not result.isStreaming:
        raise new_error(BadQuery, "a query that goes on reads topics, and this one reads none")
    records = as_records(result)
    writer: Any = records.writeStream.queryName(wanted.name).outputMode(wanted.mode)
    writer = writer.option("checkpointLocation", wanted.checkpoint)
    if wanted.available_now:
        writer = writer.trigger(availableNow=True)
    elif wanted.every is not None:
        writer = writer.trigger(processingTime=wanted.every)
    try:
        if wanted.mode == "update":
            return _start_updating(writer, wanted)
        writer = writer.format("riacho").option("url", wanted.url).option("topic", wanted.topic)
        query: StreamingQuery = writer.start()
        return query
    except PySparkException as error:
        raise new_error(BadQuery, explained(error)) from None


def _start_updating(writer: Any, wanted: Continuous) -> "StreamingQuery":
    # The first batch may be ready before we know what the query is called.
    is_named = threading.Event()
    names: list[str] = []

    def write(batch: "DataFrame", batch_id: int) -> None:
        is_named.wait()
        sink = batch.write.format("riacho").option("url", wanted.url).option("topic", wanted.topic)
        sink.option("queryId", names[0]).option("batchId", batch_id).mode("append").save()

    query: StreamingQuery = writer.foreachBatch(write).start()
    names.append(str(query.id))
    is_named.set()
    return query


def follow(
    query: "StreamingQuery", stop: threading.Event, tell: Callable[[int, int], None]
) -> None:
    """Return when the query has ended, or when `stop` is set, after it has been stopped.

    `tell` is called with the id and the rows of every micro-batch that had some. Raises
    `QueryFailed`.
    """
    last = -1
    try:
        while not stop.is_set() and not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            last = _told(query, last, tell)
        _told(query, last, tell)
    except PySparkException as error:
        if not stop.is_set():
            raise new_error(QueryFailed, explained(error)) from None
    finally:
        query.stop()


def _told(query: "StreamingQuery", last: int, tell: Callable[[int, int], None]) -> int:
    for progress in query.recentProgress:
        batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
        if batch_id > last:
            last = batch_id
            if rows:
                tell(batch_id, rows)
    return last
