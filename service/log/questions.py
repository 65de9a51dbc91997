"""Readers that wait for the same records share one question and one answer.

A question is a position in a partition and how much to read there. However many readers wait for
it, the partition is watched once, read once when it has moved, and encoded once for each requested
form. The answer is handed out to a few readers at a time (storage/lanes/releases.py).

- A reader that disconnects or times out leaves the question; the others stay. The question ends
  with its last reader.
- While an answer is handed out, readers that return for the records after it wait until that is
  done, and then share the next answer. Otherwise each would find another end, and need its own
  read. A reader that comes too late for an answer can still get it for a moment (`recent`).
- Nothing else is shared: each reader has its own time limit, its own share of the outgoing bytes
  and its own identifier. If the common answer does not fit, or after any error, each reader reads
  by itself and gets its own result.
- An answer names the end of the log, which must not be older than any request it answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from service.log.rereading import reread
from service.process.limits.outgoing import RequestShares, Share, Shares
from storage.errors import RiachoError
from storage.formats.partitions import LanePartition
from storage.lanes.lane import Lane, LaneView
from storage.lanes.releases import PER_TURN, Releases
from storage.reading.fetched import Budget, Fetched
from storage.reading.forms import KafkaForm
from storage.reading.reader import LogReader
from storage.tasks import detached, drop_error, shared

if TYPE_CHECKING:
    from service.http.answer_size import Body

READ_VIEW_AGE_MAX_S: Final = 1.0
"""Maximum age of a head that serves records below its end: committed records do not change, but
the topic may be deleted and its log start may move."""

RETURN_S_MAX: Final = 0.1
"""Maximum time the next answer waits for the readers of the last one to return."""


@dataclass(frozen=True, slots=True)
class Question:
    lane: Lane
    partition: LanePartition
    """Within the lane."""
    offset: int
    budget: Budget
    min_bytes: int
    form: KafkaForm | None = None
    """What the reader gets; None: Arrow slices."""

    def is_answered_by(self, fetched: Fetched, view: LaneView) -> bool:
        """Whether nothing is gained by waiting for more."""
        return (
            fetched.size_bytes >= self.min_bytes
            or fetched.end_offset < view.head.next_offsets[self.partition]
            or fetched.record_count >= self.budget.records_max
        )


@dataclass(frozen=True, slots=True, eq=False)
class SharedAnswer:
    """What was read once for all readers of a question."""

    fetched: Fetched
    view: LaneView
    share: Share
    """Share of the records themselves, with the readers of the answer as its users."""
    _bodies: "dict[Hashable, asyncio.Task[Body]]" = field(default_factory=dict)

    async def body(self, form: Hashable, encode: "Callable[[], Awaitable[Body]]") -> "Body":
        """Return what `encode` returns; call it once for each form."""
        encoding = self._bodies.get(form)
        if encoding is None:
            encoding = self._bodies[form] = shared(_awaited(encode))
        return encoding.result() if encoding.done() else await asyncio.shield(encoding)


async def _awaited(encode: "Callable[[], Awaitable[Body]]") -> "Body":
    return await encode()


@dataclass(slots=True, eq=False)
class _Asked:
    """A question while it waits for its answer."""

    waiters: "dict[asyncio.Future[SharedAnswer | None], None]" = field(default_factory=dict)
    began_s: float = 0.0
    """When the latest of its requests began."""
    task: "asyncio.Task[None] | None" = None
    answer: SharedAnswer | None = None
    """Once found: each waiter is a user of its share."""


class Questions:
    def __init__(self, reader: LogReader, outgoing: Shares, releases: Releases) -> None:
        self._reader = reader
        self._outgoing = outgoing
        self._releases = releases
        self._asked: dict[Question, _Asked] = {}
        self._handing_out: dict[tuple[Lane, int], tuple[int, asyncio.Future[None]]] = {}
        """By partition: where the answer being handed out ends, and when that is done."""
        self._recent: dict[Question, SharedAnswer] = {}
        self.is_draining = False
        """No reader may wait any more: set it, and wake all lanes."""

    def recent(
        self, question: Question, view: LaneView, shares: RequestShares
    ) -> SharedAnswer | None:
        """Return an answer handed out a moment ago, if `view` still has its records.

        From now on its share is one of `shares`.
        """
        answer = self._recent.get(question)
        if answer is None or view.head.log_starts[question.partition] > question.offset:
            return None
        answer.share.retain()
        shares.own(answer.share)
        return answer

    def is_next(self, lane: Lane, partition: LanePartition, offset: int) -> bool:
        """Whether `offset` follows an answer that is being handed out: wait for the next one."""
        handing_out = self._handing_out.get((lane, partition))
        return handing_out is not None and offset >= handing_out[0]

    async def answer(
        self,
        question: Question,
        since: LaneView | None,
        began_s: float,
        timeout_s: float,
        shares: RequestShares,
    ) -> SharedAnswer | None:
        """Return the answer as soon as there is more than in `since`, for a request of `began_s`.

        Without `since`, as soon as there is anything. From now on its share is one of `shares`.
        Returns None after `timeout_s` or an error; the caller then reads by itself.
        """
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = _Asked()
            asked.task = detached(self._find(question, asked, since))
            asked.task.add_done_callback(drop_error)
        asked.began_s = max(asked.began_s, began_s)
        waiter: asyncio.Future[SharedAnswer | None] = asyncio.get_running_loop().create_future()
        asked.waiters[waiter] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await waiter
            return None
        finally:
            asked.waiters.pop(waiter, None)
            if asked.answer is not None:
                # Also if this request was cancelled before it got the answer.
                shares.own(asked.answer.share)
            if not asked.waiters and self._asked.get(question) is asked:
                self._close(question, asked)
                assert asked.task is not None, question
                asked.task.cancel()

    def _close(self, question: Question, asked: _Asked) -> None:
        """Later requests start a new question."""
        if self._asked.get(question) is asked:
            del self._asked[question]

    async def _find(self, question: Question, asked: _Asked, since: LaneView | None) -> None:
        answer: SharedAnswer | None = None
        with RequestShares(self._outgoing) as shares:
            try:
                # If this fails, each waiting reader reads by itself and gets its own error.
                with suppress(RiachoError):
                    answer = await self._read(question, asked, since, shares)
            finally:
                self._close(question, asked)
                waiters = list(asked.waiters)
                if answer is not None:
                    asked.answer = answer
                    for _ in waiters:
                        answer.share.retain()
                    if len(waiters) > PER_TURN:
                        self._note(question, answer, waiters)
                self._releases.release(waiters, answer)

    def _note(
        self,
        question: Question,
        answer: SharedAnswer,
        waiters: "list[asyncio.Future[SharedAnswer | None]]",
    ) -> None:
        """Remember that the answer is being handed out, until its readers may have returned."""
        place, loop = (question.lane, question.partition), asyncio.get_running_loop()
        last, began_s = loop.create_future(), loop.time()
        waiters.append(last)
        noted = answer.fetched.end_offset, loop.create_future()
        self._handing_out[place] = noted
        self._recent[question] = answer
        answer.share.retain()
        loop.call_later(READ_VIEW_AGE_MAX_S, self._forget, question, answer)

        def end() -> None:
            noted[1].set_result(None)
            if self._handing_out.get(place) is noted:
                del self._handing_out[place]

        # Readers on this machine take about as long to return as they took to be answered.
        last.add_done_callback(
            lambda _: loop.call_later(min(RETURN_S_MAX, loop.time() - began_s), end)
        )

    def _forget(self, question: Question, answer: SharedAnswer) -> None:
        if self._recent.get(question) is answer:
            del self._recent[question]
        answer.share.release()

    async def _read(
        self, question: Question, asked: _Asked, since: LaneView | None, shares: RequestShares
    ) -> SharedAnswer:
        lane, local, view = question.lane, question.partition, since
        while True:
            if view is not None:
                await lane.watched.changed(view, None, local)
            handing_out = self._handing_out.get((lane, local))
            if handing_out is not None and not self.is_draining:
                await asyncio.wait([handing_out[1]])
            view = await lane.view(READ_VIEW_AGE_MAX_S)
            share = shares.take(question.budget.bytes_max)
            budget = replace(question.budget, bytes_max=share.size_bytes)
            read = partial(
                self._reader.fetch,
                partition=local,
                offset=question.offset,
                budget=budget,
                form=question.form,
            )
            fetched, view = await reread(lane, view, read)
            share.hold(fetched.size_bytes)
            # When the gateway stops, all readers get what there is.
            if self.is_draining or question.is_answered_by(fetched, view):
                break
            shares.release(share)
        self._close(question, asked)
        is_whole = fetched.end_offset == view.head.next_offsets[local]
        if is_whole and view.read_began_s <= asked.began_s:
            # Readers stop at the end, so the reported end must be current.
            view = await lane.view(0)
        return SharedAnswer(fetched, view, share)


__all__ = ["READ_VIEW_AGE_MAX_S", "Question", "Questions", "SharedAnswer"]
