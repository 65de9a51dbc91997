"""What this process learns, after a commit, of zones that catch up.

`acks=1` commits as soon as the leader's zone has the object; the other zones get it a little
later. The head must record the result: which zones hold the run, and which failed and so are no
longer in sync. It is written with the next commit, or by itself if there is none. If the process
dies before that, the head lists fewer copies than exist, and the controller finds them.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from storage.errors import NotEnoughReplicas
from storage.formats import zone_sets
from storage.formats.zone_sets import NONE, ZoneSet
from storage.head import replication
from storage.head.head import Head
from storage.lanes.watch import LaneRuntime


class ReplicaNews:
    """What this process knows of the zones of one lane that is not yet in the head."""

    def __init__(self, runtime: LaneRuntime, finished: Callable[[], Awaitable[bool]]) -> None:
        """`finished` writes what was learnt; it returns False if it must be called again."""
        self._runtime = runtime
        self._finished = finished
        self._copies: dict[bytes, ZoneSet] = {}
        """By object of a committed run: zones that hold it."""
        self._failed: dict[bytes, ZoneSet] = {}
        """By object of a committed run: zones where the write failed."""
        self._distrusted = NONE, 0
        """Zones that failed to store an uncommitted object, and the `leader_epoch` at that time."""
        self._is_waiting = False

    def learn(self, object_id: bytes, held: ZoneSet, failed: ZoneSet) -> None:
        """Record for a committed run that zones in `held` hold its object and `failed` do not.

        Failed zones leave the ISR unless another process has copied the object there by then.
        """
        self._copies[object_id] = self._copies.get(object_id, NONE) | held
        if failed:
            self._failed[object_id] = self._failed.get(object_id, NONE) | failed
        self._begin()

    def distrust(self, failed: ZoneSet, leader_epoch: int) -> None:
        """Record zones that failed to store an uncommitted object.

        These zones have all committed data; stop waiting for them on the next write. If the
        epoch has changed since, another process has handled it, and this report is ignored.
        """
        before, epoch = self._distrusted
        self._distrusted = failed | (before if epoch == leader_epoch else NONE), leader_epoch
        self._begin()

    def _begin(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._runtime.spawn(self._finish_later())

    async def _finish_later(self) -> None:
        await self._runtime.sleep(self._runtime.news_s)
        self._is_waiting = False
        if not await self._finished() and (self._copies or self._distrusted[0]):
            self._begin()

    def applied(self, head: Head) -> Head:
        """Return `head` with the news applied, or `head` itself if there is none."""
        distrusted, epoch = self._distrusted
        failed = distrusted if epoch == head.leader_epoch else NONE
        new = head
        if self._copies:
            # A run that is no longer inline was rolled, and then all its zones held it.
            new = replication.with_copies(head, self._copies)
            for run in new.runs:
                refused = self._failed.get(run.object_id, NONE)
                failed |= zone_sets.without(refused, run.zones)
        if failed & head.isr:
            # The last zones never leave the ISR: the first to come back still holds everything.
            with suppress(NotEnoughReplicas):
                new = replication.without_zones(new, failed)
        return new

    def committed(self, head: Head) -> None:
        """Forget the news that `head`, which is committed, already contains."""
        if not self._copies and not self._distrusted[0]:
            return
        held = {run.object_id: run.zones for run in head.runs}
        left = {
            object_id: zones
            for object_id, zones in self._copies.items()
            if object_id in held
            and not zone_sets.is_within(
                zones | self._failed.get(object_id, NONE) & head.isr, held[object_id]
            )
        }
        self._failed = {i: zones for i, zones in self._failed.items() if i in left}
        self._copies = left
        if self._distrusted[1] != head.leader_epoch:
            self._distrusted = NONE, 0
