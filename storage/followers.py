"""Zones that catch up: what this process learns of them after a commit.

`acks=1` commits as soon as the leader's zone has the object; the other zones get it a little
later. What became of that belongs into the head: which zones hold the run, and which failed and
so are not in sync any more. It goes along with the next commit, or by itself if there is none.
If the process dies before, the head says less than is true, and the controller finds out.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from storage import replication
from storage.errors import NotEnoughReplicas
from storage.head import Head
from storage.watch import LaneRuntime

NEWS_S: Final = 0.5
"""News waits so long for a commit that takes it along."""


class Followers:
    """What is known of the zones of one lane beyond its head."""

    def __init__(self, runtime: LaneRuntime, finished: Callable[[], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._finished = finished
        self._copies: dict[bytes, int] = {}
        self._failed = 0
        self._is_waiting = False

    def learn(self, object_id: bytes, held: int, failed: int) -> None:
        """Take note that the zones in `held` have the object, and those in `failed` do not."""
        self._copies[object_id] = self._copies.get(object_id, 0) | held
        self._failed |= failed
        if not self._is_waiting:
            self._is_waiting = True
            self._runtime.spawn(self._tell())

    async def _tell(self) -> None:
        await self._runtime.sleep(NEWS_S)
        self._is_waiting = False
        await self._finished()

    def applied(self, head: Head) -> Head:
        """Return `head` with the news in it, or `head` itself if there is none."""
        if not self._copies and not self._failed:
            return head
        mentioned = {run.object_id for run in head.runs}
        self._copies = {i: held for i, held in self._copies.items() if i in mentioned}
        new = replication.with_copies(head, self._copies)
        if self._failed:
            # The last zones never leave: whichever comes back first still holds everything.
            with suppress(NotEnoughReplicas):
                new = replication.without_zones(new, self._failed)
        return new

    def committed(self, head: Head) -> None:
        """Forget what `head`, which is committed, says already."""
        held = {run.object_id: run.zones for run in head.runs}
        self._copies = {i: mask for i, mask in self._copies.items() if mask & ~held.get(i, mask)}
        self._failed &= head.isr
