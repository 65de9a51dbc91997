"""Many changes of a group at once, as one write.

Calls that change a group hand in a transition. While one write is on its way, the next ones
gather; then all of them are applied, in order, to the group as it is read then, and written
together. So a rebalance of N members that meet at one gateway is a few writes, not N. A transition
that is refused harms no other.

Transitions can be repeated (`service/groups/classic/rounds.py`): after a conflict or a lost reply
they are all applied again to what is stored by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from service.groups.beats import encode_beat
from service.groups.items import GroupItems, Known
from service.groups.state import Group
from storage import keys
from storage.errors import GroupFull, OutcomeUnknown, RiachoError
from storage.stores.metadata import TRANSACT_OPS_MAX, Delete, MetadataStore, Op, Put
from storage.tasks import begin

Transition: TypeAlias = Callable[[Group], Group]

AT_ONCE_MAX: Final = 45
"""Maximum number of transitions in one write: each may put the item of one member and delete that
of another."""

OPS_MAX: Final = TRANSACT_OPS_MAX - 10


@dataclass(slots=True)
class _Queued:
    transition: Transition
    done: "asyncio.Future[Known]"
    error: RiachoError | None = None


class Combiner:
    def __init__(self, metadata: MetadataStore, items: GroupItems) -> None:
        self._metadata = metadata
        self._items = items
        self._queues: dict[str, list[_Queued]] = {}
        """By group, as long as somebody works on its queue."""

    async def apply(self, group_id: str, transition: Transition) -> Known:
        """Return the group after the transition, and those that were written together with it.

        Raises what the transition raises, and every error of the store.
        """
        queued = _Queued(transition, asyncio.get_running_loop().create_future())
        queue = self._queues.get(group_id)
        if queue is None:
            self._queues[group_id] = [queued]
            begin(self._work(group_id))
        else:
            queue.append(queued)
        return await queued.done

    async def _work(self, group_id: str) -> None:
        queue = self._queues[group_id]
        taken: list[_Queued] = []
        try:
            while queue:
                taken, queue[:AT_ONCE_MAX] = queue[:AT_ONCE_MAX], []
                # Of a caller that has gone meanwhile nothing is written.
                await self._settle(group_id, [one for one in taken if not one.done.done()])
        finally:
            del self._queues[group_id]
            # Nobody is left unless this was stopped half way.
            _fail([*taken, *queue], OutcomeUnknown(f"group {group_id!r} may have changed"))

    async def _settle(self, group_id: str, batch: Sequence[_Queued]) -> None:
        """Apply the batch, and give every caller its answer."""
        try:
            known = await self._items.changing(
                group_id, lambda known, _: self._change(group_id, known, batch)
            )
        except GroupFull as error:
            if len(batch) > 1:
                # One or several are too large for the rest.
                for one in batch:
                    await self._settle(group_id, [one])
            else:
                _fail(batch, error)
        except RiachoError as error:
            _fail(batch, error)
        else:
            for one in batch:
                if one.error is not None:
                    _fail([one], one.error)
                elif not one.done.done():
                    one.done.set_result(known)

    async def _change(self, group_id: str, known: Known, batch: Sequence[_Queued]) -> Known:
        group = known.group
        for one in batch:
            one.error = None
            try:
                group = one.transition(group)
            except RiachoError as error:
                one.error = error
        if group is known.group:
            return known
        ops = await self._member_ops(group_id, known.group, group)
        versions = await self._items.write(group_id, known, group, ops)
        return Known(group, versions[keys.group(group_id)])

    async def _member_ops(self, group_id: str, before: Group, after: Group) -> list[Op]:
        """Return what makes the items of members those of `after`.

        If very many leave at once, the items of some stay; a look at the sessions deletes them.
        """
        ops: list[Op] = [
            Put(keys.member(group_id, m), encode_beat(0, after.generation), None)
            for m in after.members
            if m not in before.members
        ]
        gone = [keys.member(group_id, m) for m in before.members if m not in after.members]
        if gone:
            items = await self._metadata.get_many(gone[: OPS_MAX - len(ops)])
            ops += [Delete(key, item.version) for key, item in items.items()]
        return ops


def _fail(batch: Sequence[_Queued], error: Exception) -> None:
    for one in batch:
        if not one.done.done():
            one.done.set_exception(error)
