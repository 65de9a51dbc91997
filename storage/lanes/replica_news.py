"""Zones that catch up: what this process learns of them after a commit.

`acks=1` commits as soon as the leader's zone has the object; the other zones get it a little
later. What became of that belongs into the head: which zones hold the run, and which failed and
so are not in sync any more. It goes along with the next commit, or by itself if there is none.
If the process dies before, the head says less than is true, and the controller finds out.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from storage.errors import NotEnoughReplicas
from storage.head import replication
from storage.head.head import Head
from storage.lanes.watch import LaneRuntime


class ReplicaNews:
    """What is known of the zones of one lane beyond its head."""

    def __init__(self, runtime: LaneRuntime, finished: Callable[[], Awaitable[bool]]) -> None:
        """Have `finished` write what was learnt; it returns False if that must be tried again."""
        self._runtime = runtime
        self._finished = finished
        self._copies: dict[bytes, int] = {}
        """By object of a committed run: zones that have it."""
        self._failed: dict[bytes, int] = {}
        """By object of a committed run: zones that do not, and will not."""
        self._distrusted = 0, 0
        """Zones that failed with something that is not committed, and the `leader_epoch` then."""
        self._is_waiting = False

    def learn(self, object_id: bytes, held: int, failed: int) -> None:
        """Take note of a committed run: zones in `held` have its object, `failed` do not.

        Those that failed leave the ISR unless they have got it from someone else by then.
        """
        self._copies[object_id] = self._copies.get(object_id, 0) | held
        if failed:
            self._failed[object_id] = self._failed.get(object_id, 0) | failed
        self._begin()

    def distrust(self, failed: int, leader_epoch: int) -> None:
        """Take note of zones that failed with something that is not committed.

        They lack nothing, but the next one shall not wait for them again. If anyone left or
        came back since, somebody else has taken care of it.
        """
        before, epoch = self._distrusted
        self._distrusted = failed | (before if epoch == leader_epoch else 0), leader_epoch
        self._begin()

    def _begin(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._runtime.spawn(self._tell())

    async def _tell(self) -> None:
        await self._runtime.sleep(self._runtime.news_s)
        self._is_waiting = False
        if not await self._finished() and (self._copies or self._distrusted[0]):
            self._begin()

    def applied(self, head: Head) -> Head:
        """Return `head` with the news in it, or `head` itself if there is none."""
        distrusted, epoch = self._distrusted
        failed = distrusted if epoch == head.leader_epoch else 0
        new = head
        if self._copies:
            # What is not inline any more was rolled, and then it was complete.
            new = replication.with_copies(head, self._copies)
            for run in new.runs:
                failed |= self._failed.get(run.object_id, 0) & ~run.zones
        if failed & head.isr:
            # The last zones never leave: whichever comes back first still holds everything.
            with suppress(NotEnoughReplicas):
                new = replication.without_zones(new, failed)
        return new

    def committed(self, head: Head) -> None:
        """Forget what `head`, which is committed, says already."""
        if not self._copies and not self._distrusted[0]:
            return
        held = {run.object_id: run.zones for run in head.runs}
        left = {
            object_id: mask
            for object_id, mask in self._copies.items()
            if object_id in held
            and (mask | self._failed.get(object_id, 0) & head.isr) & ~held[object_id]
        }
        self._failed = {i: mask for i, mask in self._failed.items() if i in left}
        self._copies = left
        if self._distrusted[1] != head.leader_epoch:
            self._distrusted = 0, 0
