"""A consumer's session with its group: joins, beats, leaves, and knows whether it is a member.

    join ─▶ beat ─▶ beat ─▶ …       one task, on the event loop, whatever the program does

It only listens. What the group says takes effect in `Membership`, inside `poll`; until then
`owned` is what this consumer reads, and what it still reads nobody else gets.
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
from riacho.http.retries import Backoff, Trouble
from riacho.records import TopicPartition
from storage.errors import Corrupt, IllegalGeneration, RiachoError, UnknownMember

log = logging.getLogger("riacho")

SETTLING_BEATS: Final = 10
"""After a new generation so many heartbeats come early: what others give up is ours sooner."""

SETTLING_SHARE: Final = 0.1
"""How early: after this part of the usual interval."""

JOIN_AT_CLOSE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    heartbeat_interval_s: float
    max_poll_interval_s: float
    trouble_max_s: float
    backoff: Backoff


class Session:
    def __init__(
        self,
        client: GroupClient,
        assignment: Assignment,
        pace: Pace,
        wake: Callable[[], None],
    ) -> None:
        """Call `wake` when there is news, for whoever waits for records."""
        self._client = client
        self._assignment = assignment
        self._pace = pace
        self._wake = wake
        self._session_s = client.settings.session_timeout_ms / 1000
        self.subscription: Subscription | None = None
        """What is wanted; None: to be no member."""
        self.joined: Subscription | None = None
        self.beat: Beat | None = None
        """What the group said last; None for one who is no member."""
        self.owned: frozenset[TopicPartition] = frozenset()
        """What this consumer reads now."""
        self.is_lost = False
        self.failure: RiachoError | None = None
        """What keeps this consumer out of its group."""
        self.has_news = False
        self.sure_until_s = math.inf
        """Until when nobody else can have been given what we own."""
        self.hurry = asyncio.Event()
        self._trouble = Trouble(pace.backoff, pace.trouble_max_s)
        self._settling = 0
        self._polled_s = time.monotonic()
        self._is_polling = False
        self._task: asyncio.Task[None] | None = None
        self._joining: asyncio.Future[Beat] | None = None
        self._lock = asyncio.Lock()

    @property
    def is_managed(self) -> bool:
        """Whether the group says what is read, and not the program. Any thread may ask."""
        return self.subscription is not None or self.beat is not None

    def polling(self, is_polling: bool) -> None:
        """Note that `poll` begins or ends: someone who never polls is no use to the group."""
        self._polled_s = time.monotonic()
        self._is_polling = is_polling

    def start(self) -> None:
        """Begin, when there is something to join and nothing has begun."""
        if self._task is None and self.subscription is not None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Leave the group, unless it shall wait for this instance to return."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._joining is not None:
            # Half a join would leave a member behind that nobody hears from.
            await asyncio.wait({self._joining}, timeout=JOIN_AT_CLOSE_S_MAX)
            if self._joining.done() and not self._joining.exception():
                self.beat = self._joining.result()
            self._joining.cancel()
        with suppress(RiachoError):
            await self._leave()

    async def refresh(self) -> Beat | None:
        """Beat now, and return what the group says; None for one who is no member.

        Raises `UnknownMember` or `IllegalGeneration` for one who is no member any more.
        """
        async with self._lock:
            beat = self.beat
            if beat is None:
                return None
            sent_s = time.monotonic()
            # The group asks what we read only to learn what we do not read any more.
            new = await self._client.heartbeat(beat, self.owned if beat.revoke else None)
            if self.beat is beat:  # Else we left, or lost our place, while it was on its way.
                self._hear(new, sent_s)
            return self.beat

    async def lose(self, error: RiachoError) -> None:
        """Note that this consumer is no member any more."""
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
        self._tell()

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
                self._tell()
                await asyncio.sleep(self._pace.heartbeat_interval_s)
            else:
                self._trouble.over()

    async def _turn(self) -> None:
        """Do one thing: leave, join, or wait and beat."""
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
            self.hurry.set()  # We never began to read it, so say so at once.
        self._tell()

    def _tell(self) -> None:
        self.has_news = True
        self._wake()

    async def _leave(self) -> None:
        beat, self.beat = self.beat, None
        self.sure_until_s = math.inf
        # A static member keeps its place, and gets it back when it joins again.
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
        self._tell()
        await self._leave()

    async def _note_trouble(self, error: RiachoError) -> None:
        """Remember what went wrong, and wait before the next try."""
        if self._trouble.note(error):
            self.failure = error
            self._tell()
        log.debug("group failed", extra={"code": error.code, "detail": str(error)})
        await self._trouble.wait(error)
