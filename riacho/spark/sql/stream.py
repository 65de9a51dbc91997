"""A continuous query: its results are written to a topic, each exactly once.

    topics ──▶ the query ──▶ key, value as JSON ──▶ the sink of this package ──▶ topic

In the mode "update" Spark passes changed rows to a function instead, since Python sinks have no
such mode. It writes each batch under the id of the query, which is in the checkpoint, and the id
of the batch.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from riacho.errors import new_error
from riacho.spark.sql.errors import BadQuery, explained
from riacho.spark.sql.schema import quoted
from storage.errors import Rejected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

KEYS: Final = ("_key", "key")
POLL_S: Final = 0.5

_SAME: Final = {"_timestamp": "timestamp", "_headers": "array<struct<key:string,value:binary>>"}
_PLACES: Final = ("_partition", "_offset")

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


class QueryFailed(Rejected):
    """The query failed after it was started."""

    code = "QUERY_FAILED"


def as_records(result: "DataFrame") -> "DataFrame":
    """Return key and value of each row: `_key` or `key` if there is one, the rest as JSON.

    `_timestamp` and `_headers` are kept as those of the record, and `_partition` and `_offset`
    are left out, so that SELECT * copies records. Raises `BadQuery` if no column is left for the
    value.
    """
    from pyspark.sql import functions as f

    names = result.columns
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise new_error(BadQuery, f"two columns are called {twice!r}; rename one with AS")
    key = next((name for name in KEYS if name in names), None)
    kinds = dict(result.dtypes)
    as_before = [name for name, kind in _SAME.items() if kinds.get(name) == kind]
    apart = {key, *as_before, *_PLACES}
    others = [f.col(quoted(name)) for name in names if name not in apart]
    if not others:
        raise new_error(BadQuery, "nothing is selected for the value; select more than the key")
    columns = [f.to_json(f.struct(*others), {"ignoreNullFields": "false"}).alias("value")]
    columns += [f.col(name).alias(name.removeprefix("_")) for name in as_before]
    if key is not None:
        columns.append(_text(key, kinds[key]).alias("key"))
    return result.select(*columns)


def _text(name: str, kind: str) -> "Column":
    from pyspark.sql import functions as f

    if kind == "binary":
        return f.col(name)
    is_nested = kind.startswith(("struct", "array", "map"))
    return f.to_json(f.col(name)) if is_nested else f.col(name).cast("string")


def start(result: "DataFrame", wanted: Continuous) -> "StreamingQuery":
    """Start the query; raise `BadQuery` if it cannot run continuously."""
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
    except Py4JJavaError as error:
        raise new_error(QueryFailed, explained(error)) from None


def _start_updating(writer: Any, wanted: Continuous) -> "StreamingQuery":
    # The first batch may be ready before the id of the query is known.
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
    query: "StreamingQuery", stop: threading.Event, report: Callable[[int, int], None]
) -> None:
    """Return when the query has ended, or when `stop` is set, after it has been stopped.

    `report` is called with the id and the rows of every micro-batch that had some. Raises
    `QueryFailed`.
    """
    last = -1
    try:
        while not stop.is_set() and not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            last = _report_new_batches(query, last, report)
        _report_new_batches(query, last, report)
    except PySparkException as error:
        if not stop.is_set():
            raise new_error(QueryFailed, explained(error)) from None
    finally:
        query.stop()


def _report_new_batches(
    query: "StreamingQuery", last: int, report: Callable[[int, int], None]
) -> int:
    for progress in query.recentProgress:
        batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
        if batch_id > last:
            last = batch_id
            if rows:
                report(batch_id, rows)
    return last
