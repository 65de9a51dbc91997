"""Writes to topics: a job or a micro-batch is written once and completely, or not at all.

    driver, before the tasks    begins a transaction                     (a writer is pickled)
    tasks                       stage rows, and return the names of them
    driver, after the tasks     commits what successful tasks have named, in the order of tasks

Rows of failed, retried or speculative attempts are not named, so they are not committed.

A streaming query commits a *marker* with every micro-batch: the group `spark-sink-<query id>`
commits the id of the batch plus one as its offset. After a crash Spark may run a batch again
although it was committed, if it had not yet noted the commit. Then the marker already exists, and
the copy is aborted. The query's id is the one in its checkpoint, so a new checkpoint is a new
query. In `foreachBatch` the options `queryId` and `batchId` do the same for a batch write.

If two drivers use one checkpoint, because the first was wrongly believed dead, they have the same
transactional id. Beginning a transaction fences the earlier driver, and the marker is read after
that: if the batch is missing then, it stays missing until this transaction commits or is fenced.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from riacho.spark.write.options import WriteOptions, parse_batch, parse_stream
from riacho.spark.write.rows import Layout, layout, requests
from riacho.spark.write.transactions import Connection, Stager
from storage.errors import InvalidConfig

GROUP_PREFIX: Final = "spark-sink-"

_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class StagedTask(WriterCommitMessage):
    """What a task has staged."""

    transaction_id: str
    names: tuple[str, ...] = ()
    topics: frozenset[str] = frozenset()
    query_id: str | None = None


class _Writer:
    """What both writers share: a transaction that begins when Spark sends them to the tasks."""

    def __init__(self, options: WriteOptions, wanted: Layout) -> None:
        self._options = options
        self._layout = wanted
        # Batch jobs are independent of earlier ones, so each gets a random id.
        self._transactional_id = options.transactional_id or f"spark-{secrets.token_hex(16)}"
        self._transaction_id: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark creates a writer on the driver for each micro-batch, and pickles it for the tasks:
        # this is the only hook before they start. Writers that commit are not pickled again.
        if self._transaction_id is None and self._options.atomic == "job":
            with Connection(self._options) as connection:
                self._transaction_id = connection.begin(self._transactional_id)
        return self.__dict__

    def _write(self, iterator: Iterator[pa.RecordBatch], transaction_id: str | None) -> StagedTask:
        assert transaction_id is not None
        ready = requests(iterator, self._layout)
        first = next(ready, None)
        if first is None:  # Like most tasks after a shuffle of few rows.
            return StagedTask(transaction_id)
        topics = set()
        with Connection(self._options) as connection:
            stager = Stager(connection, transaction_id)
            for topic, batch in chain([first], ready):
                stager.send(topic, batch)
                topics.add(topic)
            names = tuple(stager.finish())
        query_id = _task().getLocalProperty(_QUERY_ID)
        return StagedTask(transaction_id, names, frozenset(topics), query_id)

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], query_id: str | None, batch_id: int
    ) -> None:
        """Make all rows visible, unless this batch of this query was committed before."""
        written = _written(messages)
        names = [name for each in written for name in each.names]
        if not names:
            # Writing nothing twice does no harm, so an empty batch needs no marker.
            self._abort(messages)
            return
        transaction_id, marker = written[0].transaction_id, None
        topic = min(topic for each in written for topic in each.topics)
        with Connection(self._options) as connection:
            if query_id is not None:
                group = GROUP_PREFIX + query_id
                if connection.marker(group) > batch_id:
                    connection.abort(transaction_id)
                    return
                marker = _marker(group, topic, batch_id)
            connection.commit(transaction_id, names, marker)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what tasks have staged; the gateway then refuses tasks that are still writing."""
        ids = {each.transaction_id for each in _written(messages)}
        if self._transaction_id is not None:
            ids.add(self._transaction_id)
        with Connection(self._options) as connection:
            for transaction_id in ids:
                connection.abort(transaction_id)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("riacho")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of a task; with atomic=task, commit them too."""
        if self._options.atomic == "job":
            return self._write(iterator, self._transaction_id)
        with Connection(self._options) as connection:
            # Fences an earlier attempt of the same task that is still running.
            own_id = f"{self._transactional_id}-{_task().partitionId()}"
            transaction_id = connection.begin(own_id)
            written = self._write(iterator, transaction_id)
            connection.commit(transaction_id, written.names)
            return StagedTask(transaction_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible."""
        if self._options.atomic == "job":
            self._commit(messages, self._options.query_id, self._options.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop everything; with atomic=task, failed tasks have committed nothing."""
        if self._options.atomic == "job":
            self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("riacho")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of a task of a micro-batch."""
        return self._write(iterator, self._transaction_id)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Make the micro-batch visible, unless it is already."""
        query_ids = {each.query_id for each in _written(messages) if each.names}
        assert None not in query_ids, "Spark tells its tasks of which query they are"
        assert len(query_ids) <= 1, query_ids
        self._commit(messages, query_ids.pop() if query_ids else None, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Drop the micro-batch; Spark runs it again."""
        self._abort(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return a writer of rows of `schema`, or raise `InvalidConfig`."""
    if overwrite:
        raise InvalidConfig("a topic cannot be overwritten, only appended to: .mode('append')")
    parsed = parse_batch(options)
    return BatchWriter(parsed, layout(schema, parsed.topic))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return a writer of micro-batches of `schema`, or raise `InvalidConfig`.

    `overwrite`, the output mode "complete", appends the whole result each time, as with Kafka.
    """
    parsed = parse_stream(options)
    return StreamWriter(parsed, layout(schema, parsed.topic))


def _marker(group: str, topic: str, batch_id: int) -> dict[str, Any]:
    offsets = {"topic": topic, "partition": 0, "offset": batch_id + 1, "metadata": "next batch"}
    return {"group": group, "offsets": [offsets]}


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    return [each for each in messages if isinstance(each, StagedTask)]


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task
