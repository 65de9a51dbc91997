"""Consumers: read records, from positions that the caller or a group controls.

`AsyncConsumer` is for programs with an event loop, `Consumer` for all others; they differ
only in how they wait.
"""

import inspect
import time
from typing import Final, Self

from riacho.consumer.commits import CommitCallback
from riacho.consumer.group_calls import OffsetsGiven
from riacho.consumer.membership import Call
from riacho.consumer.shared import Consuming
from riacho.http.background import Synchronous
from riacho.records import Record, TopicPartition

ITERATION_POLL_MS: Final = 3_600_000


class AsyncConsumer(Consuming):
    """Reads records; for programs with an event loop.

        async with AsyncConsumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.partition, record.offset, record.text())

    **With a group**, its members share the partitions, and continue at the committed offsets.
    When to commit decides what a crash does:

    - *At least once*, the default. What a poll returned is committed by a later poll, after
      `auto_commit_interval_ms`: polling again says that you are done with it. A crash, or an
      exception that leaves `async with`, repeats what was not committed.
    - *At least once, tighter*: `enable_auto_commit=False`, and `await consumer.commit()` after
      the work of each poll.
    - *At most once*: `enable_auto_commit=False`, and `commit` right after `poll`, before the
      work. A crash loses what was not finished, and repeats nothing.

    - *Exactly once*, for what is written to topics: `enable_auto_commit=False`, and commit the
      offsets in the transaction that writes the results, by `producer.send_offsets(consumer)`.
      After an aborted transaction, call `seek_to_committed`.

    Work that is stored together with its offsets, in one transaction of your database, is done
    exactly once as well: `seek` to the stored offsets in `on_assigned`.

    **Without a group** the position in a partition moves only when records are returned.
    Keep `record.offset + 1` of what you finished, `seek` there after a restart,
    and no record is missed.
    """

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """Return records as soon as there are any; none if `timeout_ms` pass first.

        Records of one partition come in order. Raises errors that a retry cannot fix, such as
        `UnknownTopicOrPartition`; an unreachable gateway only after `default_api_timeout_ms`.
        In a group, poll at least every `max_poll_interval_ms`; callbacks are called inside `poll`.
        """
        records_max = max_records or self._max_poll_records
        assignment = self._fetching.assignment
        give_up_s = time.monotonic() + timeout_ms / 1000
        self._note_poll(is_polling=True)
        try:
            while True:
                while self._is_due() and (call := await self._advance()) is not None:
                    await self._make(call)
                if not assignment.has_records():
                    remaining_s = give_up_s - time.monotonic()
                    await self._fetching.wait_for_records(max(remaining_s, 0.0))
                    if self._is_due():
                        continue
                records = assignment.take(records_max)
                if records or time.monotonic() >= give_up_s:
                    break
        finally:
            self._note_poll(is_polling=False)
        if assignment.is_low():
            self._fetching.start()
        return records

    async def commit(self, offsets: OffsetsGiven | None = None) -> None:
        """Commit offsets of the group, and return when they are durable.

        Without `offsets`: those after everything that polls have returned. With it: the offset
        of the next record to read, by (topic, partition). Raises `CommitFailed` if partitions
        now belong to other members; those that are still ours are committed nevertheless.
        """
        await self._commit(offsets)

    def commit_async(
        self, offsets: OffsetsGiven | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Start to commit; the outcome is reported to `callback(offsets, error)`.

        Commits are made in the order in which they were started.
        """
        session, commits = self._group
        commits.begin_commit(session, commits.given(offsets), callback)

    async def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; for all assigned partitions if none is named.

        Partitions without a committed offset are left out.
        """
        return await self._committed(partitions)

    async def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that `poll` returns for the partition."""
        return await self._position(topic, partition)

    async def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition; of all assigned ones if none is named."""
        return await self._offsets("earliest", partitions)

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return await self._offsets("latest", partitions)

    async def close(self) -> None:
        """Commit what was returned, if auto-commit is on; leave the group; disconnect.

        A consumer with a `group_instance_id` does not leave.
        """
        await self._close(is_orderly=True)

    async def _close(self, is_orderly: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if (call := await self._closing(is_orderly)) is not None:
                await self._make(call)
        finally:
            await self._disconnect()

    async def _make(self, call: Call) -> None:
        callback = self._callbacks.get(call.kind)
        if callback is not None:
            outcome = callback(call.partitions)
            if inspect.isawaitable(outcome):
                await outcome

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while True:
            if records := await self.poll(ITERATION_POLL_MS, max_records=1):
                return records[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # After an exception the program may not have finished what was returned last.
        await self._close(is_orderly=exc_info[0] is None)


class Consumer(Consuming, Synchronous):
    """Reads records; without an event loop. One thread at a time may use it.

        with Consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.partition, record.offset, record.text())

    `for` never ends by itself; use `poll` to be able to stop. Groups, commits and positions
    work as in `AsyncConsumer`. Heartbeats continue in a thread of the client while the program
    works; callbacks are called in the thread that polls, and may use the consumer.
    """

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """Return records as soon as there are any; see `AsyncConsumer.poll`."""
        records_max = max_records or self._max_poll_records
        assignment = self._fetching.assignment
        give_up_s = time.monotonic() + timeout_ms / 1000
        self._note_poll(is_polling=True)
        try:
            while True:
                while self._is_due() and (call := self._run(self._advance())) is not None:
                    self._make(call)
                if not (self._open and assignment.has_records()):
                    remaining_s = give_up_s - time.monotonic()
                    self._run(self._fetching.wait_for_records(max(remaining_s, 0.0)))
                    if self._is_due():
                        continue
                # Taken in this thread, so that an interrupt while waiting loses no records.
                records = assignment.take(records_max)
                if records or time.monotonic() >= give_up_s:
                    break
        finally:
            self._note_poll(is_polling=False)
        if assignment.is_low() and self._open:
            self._background.loop.call_soon_threadsafe(self._fetching.start)
        return records

    def commit(self, offsets: OffsetsGiven | None = None) -> None:
        """Commit offsets of the group; see `AsyncConsumer.commit`."""
        self._run(self._commit(offsets))

    def commit_async(
        self, offsets: OffsetsGiven | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Start to commit; the outcome is reported to `callback(offsets, error)`.

        It is called in the client's background thread, and must not wait for the consumer.
        Commits are made in the order in which they were started.
        """
        session, commits = self._group
        given = commits.given(offsets)
        loop = self._background.loop
        loop.call_soon_threadsafe(commits.begin_commit, session, given, callback)

    def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; see `AsyncConsumer.committed`."""
        return self._run(self._committed(partitions))

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that `poll` returns for the partition."""
        return self._run(self._position(topic, partition))

    def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition; of all assigned ones if none is named."""
        return self._run(self._offsets("earliest", partitions))

    def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return self._run(self._offsets("latest", partitions))

    def close(self) -> None:
        """Commit what was returned, if auto-commit is on; leave the group; disconnect.

        A consumer with a `group_instance_id` does not leave. A second call does nothing.
        """
        self._close(is_orderly=True)

    def _close(self, is_orderly: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if (call := self._run(self._closing(is_orderly))) is not None:
                self._make(call)
        finally:
            super().close()

    def _make(self, call: Call) -> None:
        callback = self._callbacks.get(call.kind)
        if callback is not None:
            callback(call.partitions)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while True:
            if records := self.poll(ITERATION_POLL_MS, max_records=1):
                return records[0]

    def __exit__(self, *exc_info: object) -> None:
        # After an exception the program may not have finished what was returned last.
        self._close(is_orderly=exc_info[0] is None)

    async def _aclose(self) -> None:
        await self._disconnect()
