"""A consumer's session with its group: joins, sends heartbeats, leaves, tracks membership.

    join ─▶ beat ─▶ beat ─▶ …       one task, on the event loop, whatever the program does

It only records what the group answers. `Membership` applies it, inside `poll`; until then this
consumer reads `owned`, and the group gives these partitions to no other member.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from riacho.consumer.assignment import Assignment
from riacho.consumer.group_calls import Beat, GroupClient, Subscription
from riacho.errors import FencedInstance, new_error
from riacho.http.retries import Backoff, FailureCount
from riacho.records import TopicPartition
from storage.errors import Corrupt, IllegalGeneration, RiachoError, UnknownMember

log = logging.getLogger("riacho")

SETTLING_BEATS: Final = 10
"""Number of early heartbeats after a new generation, to get partitions from others sooner."""

SETTLING_SHARE: Final = 0.1
"""Early heartbeats are sent after this share of the usual interval."""

JOIN_AT_CLOSE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPace:
    heartbeat_interval_s: float
    max_poll_interval_s: float
    trouble_max_s: float
    backoff: Backoff


class Session:
    def __init__(
        self,
        client: GroupClient,
        assignment: Assignment,
        pace: SessionPace,
        wake: Callable[[], None],
    ) -> None:
        """Call `wake` when there is news, to interrupt a wait for records."""
        self._client = client
        self._assignment = assignment
        self._pace = pace
        self._wake = wake
        self._session_s = client.settings.session_timeout_ms / 1000
        self.subscription: Subscription | None = None
        """What to read; None: leave the group."""
        self.joined: Subscription | None = None
        self.beat: Beat | None = None
        """The group's last answer; None if this consumer is not a member."""
        self.owned: frozenset[TopicPartition] = frozenset()
        """What this consumer reads now."""
        self.is_lost = False
        self.failure: RiachoError | None = None
        """The error that keeps this consumer out of its group."""
        self.has_news = False
        self.sure_until_s = math.inf
        """Until then no other member can have been assigned what this one owns."""
        self.hurry = asyncio.Event()
        self._trouble = FailureCount(pace.backoff, pace.trouble_max_s)
        self._settling = 0
        self._polled_s = time.monotonic()
        self._is_polling = False
        self._task: asyncio.Task[None] | None = None
        self._joining: asyncio.Future[Beat] | None = None
        self._lock = asyncio.Lock()

    @property
    def is_managed(self) -> bool:
        """Whether the group, not the program, assigns partitions. Callable from any thread."""
        return self.subscription is not None or self.beat is not None

    def polling(self, is_polling: bool) -> None:
        """Note that `poll` begins or ends: a member that does not poll must leave the group."""
        self._polled_s = time.monotonic()
        self._is_polling = is_polling

    def start(self) -> None:
        """Start the task if there is a subscription and it is not running yet."""
        if self._task is None and self.subscription is not None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Leave the group, unless the group is to wait for this instance to return."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._joining is not None:
            # An abandoned join would leave a member behind that sends no heartbeats.
            await asyncio.wait({self._joining}, timeout=JOIN_AT_CLOSE_S_MAX)
            if self._joining.done() and not self._joining.exception():
                self.beat = self._joining.result()
            self._joining.cancel()
        with suppress(RiachoError):
            await self._leave()

    async def refresh(self) -> Beat | None:
        """Send a heartbeat now, and return the answer; None if not a member.

        Raises `UnknownMember` or `IllegalGeneration` if the membership was lost.
        """
        async with self._lock:
            beat = self.beat
            if beat is None:
                return None
            sent_s = time.monotonic()
            # The group needs `owned` only to learn which revoked partitions were given up.
            new = await self._client.heartbeat(beat, self.owned if beat.revoke else None)
            if self.beat is beat:  # Otherwise we left, or lost our membership, meanwhile.
                self._hear(new, sent_s)
            return self.beat

    async def lose(self, error: RiachoError) -> None:
        """Note that this consumer is no longer a member."""
        beat, self.beat = self.beat, None
        if beat is None:
            return
        self.is_lost, self.sure_until_s = True, math.inf
        log.warning("membership lost", extra={"member": beat.member_id, "detail": str(error)})
        if self._client.settings.instance_id is not None and isinstance(error, UnknownMember):
            with suppress(RiachoError):
                if await self._client.holder_of_instance() not in (None, beat.member_id):
                    detail = "another consumer with this group_instance_id has taken the place of"
                    self.failure = new_error(FencedInstance, f"{detail} {beat.member_id}")
        self._announce()

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except (UnknownMember, IllegalGeneration) as error:
                await self.lose(error)
            except RiachoError as error:
                await self._note_trouble(error)
            except Exception as error:
                log.exception("membership failed unexpectedly")
                self.failure = new_error(Corrupt, f"the client failed: {error!r}")
                self._announce()
                await asyncio.sleep(self._pace.heartbeat_interval_s)
            else:
                self._trouble.over()

    async def _turn(self) -> None:
        """Do one thing: leave, join, or wait and send a heartbeat."""
        if self._should_leave():
            await self._leave()
        elif self._should_join():
            await self._join()
        else:
            await self._wait()
            if self.beat is None or self._should_leave():
                return
            if self._is_overdue():
                await self._give_up()
            else:
                await self.refresh()

    def _should_leave(self) -> bool:
        return self.beat is not None and self.joined != self.subscription and not self.owned

    def _should_join(self) -> bool:
        return not (
            self.beat is not None
            or self.subscription is None
            or self.is_lost
            or self.failure is not None
        )

    async def _wait(self) -> None:
        interval_s = self._pace.heartbeat_interval_s
        if self._settling:
            self._settling -= 1
            interval_s *= SETTLING_SHARE
        loop = asyncio.get_running_loop()
        timer = None if self.beat is None else loop.call_later(interval_s, self.hurry.set)
        await self.hurry.wait()
        self.hurry.clear()
        if timer is not None:
            timer.cancel()

    async def _join(self) -> None:
        wanted = self.subscription
        assert wanted is not None
        sent_s = time.monotonic()
        self._joining = asyncio.ensure_future(self._client.join(wanted))
        try:
            beat = await asyncio.shield(self._joining)
        except RiachoError:
            self._joining = None
            raise
        self._joining = None
        self.joined = wanted
        self._hear(beat, sent_s)

    def _hear(self, beat: Beat, sent_s: float) -> None:
        before, self.beat = self.beat, beat
        self.sure_until_s = sent_s + self._session_s
        self._assignment.hold(is_held=False)
        if before is None or before.generation != beat.generation:
            self._settling = SETTLING_BEATS
        if beat != before and beat.revoke and not beat.revoke & self.owned:
            self.hurry.set()  # We do not read any of it, so report that at once.
        self._announce()

    def _announce(self) -> None:
        self.has_news = True
        self._wake()

    async def _leave(self) -> None:
        beat, self.beat = self.beat, None
        self.sure_until_s = math.inf
        # A static member stays in the group, and resumes its place when it joins again.
        if beat is not None and self._client.settings.instance_id is None:
            with suppress(UnknownMember):
                await self._client.leave(beat.member_id)

    def _is_overdue(self) -> bool:
        idle_s = time.monotonic() - self._polled_s
        return not self._is_polling and idle_s > self._pace.max_poll_interval_s

    async def _give_up(self) -> None:
        log.warning(
            "left the group, as poll was not called for max_poll_interval_ms",
            extra={"group": self._client.settings.group_id},
        )
        self.is_lost = True
        self._announce()
        await self._leave()

    async def _note_trouble(self, error: RiachoError) -> None:
        """Remember the error, and wait before the next attempt."""
        if self._trouble.note(error):
            self.failure = error
            self._announce()
        log.debug("group failed", extra={"code": error.code, "detail": str(error)})
        await self._trouble.wait(error)
