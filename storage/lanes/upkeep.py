"""What a lane does beside appending: rolls, spills of windows, and news of its replicas.

Each is prepared while commits go on, and the next commit of this process writes its result. If
there is no such commit, the result is written alone.
"""

from collections.abc import Callable

from storage.errors import RiachoError
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.lanes.replica_news import ReplicaNews
from storage.lanes.rolls import Rolls
from storage.lanes.watch import LaneRuntime, LaneView, WatchedHead
from storage.lanes.windows import Spills
from storage.stores.metadata import Put


class LaneUpkeep:
    """The background work of one lane in this process."""

    def __init__(
        self, watched: WatchedHead, runtime: LaneRuntime, is_committing: Callable[[], bool]
    ) -> None:
        """`is_committing` says whether a commit is under way, which writes finished work."""
        self._watched = watched
        self._runtime = runtime
        self._is_committing = is_committing
        self._replica_news = ReplicaNews(runtime, self._commit_idle)
        self._rolls = Rolls(runtime, self._commit_idle, self.distrust)
        self._spills = Spills(runtime, runtime.window_pages, self._commit_idle, self.distrust)

    def learn(self, object_id: bytes, held: ZoneSet, failed: ZoneSet) -> None:
        """Record which zones hold a run's object, of those its commit did not wait for."""
        self._replica_news.learn(object_id, held, failed)

    def distrust(self, failed: ZoneSet, leader_epoch: int) -> None:
        """Record zones in sync that failed to store uncommitted objects; see `ReplicaNews`."""
        self._replica_news.distrust(failed, leader_epoch)

    async def ready(self, head: Head) -> Head:
        """Return `head` ready for an append, with space freed if it was far too large."""
        # First remove zones from the ISR: these need not hold what is rolled.
        head = await self._rolls.ready(self._replica_news.applied(head))
        return self._replica_news.applied(await self._spills.ready(head))

    def committed(self, before: Head, view: LaneView) -> None:
        """Record a commit by this process."""
        self._written(view)
        self._rolls.begin_if_large(before, view.head)
        self._spills.begin_if_large(before, view.head)

    async def put(self, view: LaneView, head: Head) -> None:
        """Replace `view` by `head`, with nothing appended."""
        new = heads.append(head, [])
        put = Put(self._watched.key, heads.encode(new), view.version)
        versions, began_s = await self._runtime.dated.transact([put])
        self._written(LaneView(new, versions[self._watched.key], began_s))

    def _written(self, view: LaneView) -> None:
        self._watched.know(view)
        self._replica_news.committed(view.head)
        self._rolls.committed(view.head)

    async def _commit_idle(self) -> bool:
        """Commit finished work without an append; False: the caller must retry."""
        view = self._watched.latest
        if view is None or self._is_committing():
            return True  # The commit under way includes it, or is refused because of it.
        head = self._rolls.applied(self._replica_news.applied(view.head))
        head = self._spills.applied(head)
        if head is not view.head:
            try:
                await self.put(view, head)
            except RiachoError:
                return False
        return True
