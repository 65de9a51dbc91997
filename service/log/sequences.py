"""Order the requests of one idempotent producer.

A producer with several requests in flight sends them over several connections, and one may
overtake another. Refusing it costs a round trip and a retry, so an early request waits a moment
for its predecessors. Correctness does not depend on this: the commit checks every sequence
against the head.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from service.world.clock import World
from storage.errors import OutOfOrderSequence
from storage.formats.partitions import PartitionNumber
from storage.head.producers import SEQUENCES, Claim, judge
from storage.lanes.lane import Lanes, LaneView
from storage.topics.topics import Topic

GAP_WAIT_S: Final = 0.2
"""Maximum wait of an early request for its predecessors."""

GAP_LOOKS: Final = 10
"""How often `past_gap` looks again within that time."""

LOOK_EVERY_S: Final = 0.05
"""How often a waiting request checks whether its predecessors went to another gateway."""

PRODUCERS_KEPT_MAX: Final = 20_000

NOTHING_SEEN: Final = -1
"""Before every epoch."""

T = TypeVar("T")

_Key: TypeAlias = tuple[bytes, int, int]


@dataclass(slots=True, eq=False)
class _Arrived:
    """The next sequence that this gateway expects of a producer for one partition."""

    epoch: int
    next_sequence: int
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def move(self, epoch: int, next_sequence: int) -> None:
        self.epoch, self.next_sequence = epoch, next_sequence
        self.moved.set()
        self.moved = asyncio.Event()


class Sequences:
    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._arrived: OrderedDict[_Key, _Arrived] = OrderedDict()

    async def in_turn(self, topic: Topic, claims: Mapping[PartitionNumber, Claim]) -> None:
        """Return when the preceding requests have arrived, or after `GAP_WAIT_S`."""
        arrived = {
            partition: self._kept((topic.topic_id, partition, claim.producer_id))
            for partition, claim in claims.items()
        }
        early = [p for p, claim in claims.items() if _is_early(claim, arrived[p])]
        if early:
            await asyncio.gather(*(self._catch_up(topic, p, claims[p], arrived[p]) for p in early))
        # All at once, after the wait: otherwise a later request for one partition could overtake
        # this one while it still waits for another partition.
        for partition, claim in claims.items():
            if not _is_behind(claim, arrived[partition]):
                following = (claim.sequence + claim.record_count) % SEQUENCES
                arrived[partition].move(claim.epoch, following)

    async def _catch_up(
        self, topic: Topic, partition: PartitionNumber, claim: Claim, arrived: _Arrived
    ) -> None:
        """Wait until the claim is no longer early, for at most `GAP_WAIT_S`."""
        number, _ = topic.lane_of(partition)
        lane = self._lanes.lane(topic.topic_id, number)
        for _ in range(int(GAP_WAIT_S / LOOK_EVERY_S)):
            _look(arrived, lane.known(LOOK_EVERY_S) or await lane.view(0), claim)
            if not _is_early(claim, arrived):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await arrived.moved.wait()
            if not _is_early(claim, arrived):
                return

    def _kept(self, key: _Key) -> _Arrived:
        arrived = self._arrived.get(key)
        if arrived is None:
            arrived = self._arrived[key] = _Arrived(NOTHING_SEEN, 0)
        self._arrived.move_to_end(key)
        if len(self._arrived) > PRODUCERS_KEPT_MAX:
            self._arrived.popitem(last=False)
        return arrived


async def past_gap(world: World, attempt: Callable[[bool], Awaitable[T]]) -> T:
    """Return what `attempt` returns; retry `OutOfOrderSequence` for at most `GAP_WAIT_S`.

    Its argument is whether this is a retry. The missing request may be in flight.
    """
    for look in range(GAP_LOOKS):
        with suppress(OutOfOrderSequence):
            return await attempt(look > 0)
        await world.sleep(GAP_WAIT_S / GAP_LOOKS)
    return await attempt(True)


def _look(arrived: _Arrived, view: LaneView, claim: Claim) -> None:
    """Take over the producer's sequence from the head if it is further ahead."""
    window = view.windows.get(claim.key)
    if window is None:
        if view.head.producer_pages:
            # It may be in a page. Reading pages is not worth it just to order requests.
            arrived.move(claim.epoch, claim.sequence)
        return
    ahead = (window.next_sequence - arrived.next_sequence) % SEQUENCES
    is_same = window.epoch == arrived.epoch
    if window.epoch > arrived.epoch or (is_same and 0 < ahead < SEQUENCES // 2):
        arrived.move(window.epoch, window.next_sequence)


def already_written(
    topic: Topic, views: Mapping[int, LaneView], claims: Mapping[PartitionNumber, Claim]
) -> dict[PartitionNumber, int]:
    """Return the offsets of batches that were written before, according to a known head.

    Raises `InvalidProducerEpoch` or `DuplicateSequence` if that head already shows it.
    """
    found: dict[PartitionNumber, int] = {}
    for partition, claim in claims.items():
        number, _ = topic.lane_of(partition)
        window = views[number].windows.get(claim.key)
        verdict = None if window is None else judge(window, claim)
        if isinstance(verdict, int):
            found[partition] = verdict
        elif verdict is not None and not isinstance(verdict, OutOfOrderSequence):
            # An apparent gap may have been filled since.
            raise verdict
    return found


def _is_early(claim: Claim, arrived: _Arrived) -> bool:
    if claim.epoch != arrived.epoch:
        return claim.epoch > arrived.epoch and claim.sequence != 0
    return 0 < (claim.sequence - arrived.next_sequence) % SEQUENCES < SEQUENCES // 2


def _is_behind(claim: Claim, arrived: _Arrived) -> bool:
    behind = (arrived.next_sequence - claim.sequence) % SEQUENCES
    return claim.epoch < arrived.epoch or (
        claim.epoch == arrived.epoch and 0 < behind < SEQUENCES // 2
    )
