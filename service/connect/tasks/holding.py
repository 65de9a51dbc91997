"""What a run holds: the lease of its task, and what it was started for.

Every write of a run is a transaction that holds only if the lease is still its own, the item of the
task is what was read a moment ago, and so is the connector. So a run whose task was taken over, or
whose connector was changed or deleted, writes nothing. A run begins with such a write: what an
earlier run has sent, and was never answered, fails from then on.

A pause or a stop ends a run, which still commits what it has put or polled: nothing is repeated on
resume. Who changes the offsets of a stopped connector increments its `offsets_epoch` first, and
that ends this permission: a run that is late writes nothing over them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from service.connect.tasks.api import RunOver
from service.connect.tasks.items import (
    ConnectorItem,
    RunHealth,
    TaskItem,
    decode_connector,
    decode_task,
    encode_task,
    is_planned,
    may_finish,
)
from service.world.clock import World
from storage import keys, leases
from storage.cas import retry
from storage.leases import Lease, LeaseItem, LeaseLost
from storage.stores.metadata import Check, MetadataStore, Op, Put, Versioned


class Holding:
    def __init__(
        self,
        metadata: MetadataStore,
        world: World,
        connector: ConnectorItem,
        number: int,
        lease: Lease,
        worker: str,
    ) -> None:
        """`worker` says where this process is; `lease` is that of the task, and ours."""
        self.connector = connector
        self.number = number
        self.worker = worker
        self.task: TaskItem | None = None
        """As the run began."""
        self.metadata = metadata
        self.world = world
        self.lease = lease
        self._epoch = lease.epoch
        """A lease that was lost and taken again has another one."""
        self.token = b""
        """Of the last commit of this run. Whoever else has committed, this run knows too little."""
        self._connector_key = keys.connector(connector.name)
        self._task_key = keys.connect_task(connector.name, number)

    @property
    def keys(self) -> list[str]:
        """The items that decide whether the run may write."""
        return [self.lease.key, self._connector_key, self._task_key]

    def task_in(self, found: Mapping[str, Versioned]) -> TaskItem | None:
        item = found.get(self._task_key)
        return None if item is None else decode_task(item.value)

    def fence(self, found: Mapping[str, Versioned], new: TaskItem) -> list[Op]:
        """Return ops that put the task's item, and fail unless `found` still holds.

        Raises `LeaseLost` if the run may not write, as `found` shows.
        """
        reason = self.over(found)
        if reason:
            raise RunOver(reason)
        return [
            self._lease_check(found),
            Check(self._connector_key, found[self._connector_key].version),
            Put(self._task_key, encode_task(new), found[self._task_key].version),
        ]

    def _lease_check(self, found: Mapping[str, Versioned]) -> Check:
        """Return the check of the lease as it is now: our own renewals change its version."""
        stored = found.get(self.lease.key)
        item = None if stored is None else leases.decode(stored.value)
        if stored is None or item is None or not self._is_mine(item):
            raise LeaseLost(f"{self.lease.key} was taken over")
        return Check(self.lease.key, stored.version)

    def _is_mine(self, item: LeaseItem) -> bool:
        return self.lease.is_mine(item) and item.epoch == self._epoch

    def over(self, found: Mapping[str, Versioned]) -> str:
        """Return why the run must end; empty: it goes on."""
        stored = found.get(self._connector_key)
        task = self.task_in(found)
        if stored is None or task is None:
            return "deleted"
        if self.task is not None and task.commit != self.token:
            return "another run has committed"
        connector = decode_connector(stored.value)
        if self.task is None:
            return self.ended_by(connector, task)
        return self._forbidden_by(connector, task)

    def ended_by(self, connector: ConnectorItem, task: TaskItem) -> str:
        """Return what of these items ends the run; empty: nothing does.

        After some of it the run may still commit what it has: `over` knows.
        """
        if not is_planned(connector):
            return f"the connector is {connector.target.lower()}, or planned again"
        return self._forbidden_by(connector, task)

    def _forbidden_by(self, connector: ConnectorItem, task: TaskItem) -> str:
        mine = self.connector
        if (connector.created_ms, connector.generation) != (mine.created_ms, mine.generation):
            return "its configuration has changed"
        if connector.offsets_epoch != mine.offsets_epoch:
            return "its offsets were changed"
        if not may_finish(connector):
            return f"the connector is {connector.target.lower()}, or planned again"
        began = self.task
        if began is not None and task.restart != began.restart:
            return "it is to be restarted"
        planned = task.generation == mine.generation
        if not planned or (began is not None and task.changes != began.changes):
            return "it was planned again"
        return ""

    async def change(
        self, change: Callable[[TaskItem], TaskItem], *, is_last: bool = False
    ) -> TaskItem:
        """Write the task's item; return it. Raises `LeaseLost`, and what the table raises.

        The last write of a run says how it ended, though its connector has changed since.
        """

        async def attempt(_: bool) -> TaskItem:
            found = await self.metadata.get_many(self.keys)
            task = self.task_in(found)
            if task is None:
                raise RunOver("deleted")
            new = change(task)
            if new == task:
                return task
            await self.metadata.transact(
                self._last(found, new) if is_last else self.fence(found, new)
            )
            return new

        return await retry(self._task_key, attempt, self.world.patience)

    def _last(self, found: Mapping[str, Versioned], new: TaskItem) -> Sequence[Op]:
        if new.generation != self.connector.generation:
            raise RunOver("it was planned again")
        return [
            self._lease_check(found),
            Put(self._task_key, encode_task(new), found[self._task_key].version),
        ]

    async def begin(self, state: str) -> TaskItem:
        """Write that a run begins. What earlier runs have sent has no effect from now on."""
        token = self.world.random_bytes(12)

        def begun(task: TaskItem) -> TaskItem:
            restarts = task.health.restarts + (1 if task.health.failures else 0)
            health = self.told(task, state, restarts=restarts)
            return msgspec.structs.replace(task, health=health, commit=token, gauges={}, waiting="")

        self.task = await self.change(begun)
        self.token = token
        return self.task

    def told(self, task: TaskItem, state: str, **more: Any) -> RunHealth:
        """Return the health of the task as this process tells it."""
        return msgspec.structs.replace(
            task.health,
            state=state,
            worker=self.worker,
            changed_ms=self.world.now_ms(),
            **more,
        )
