"""Flushes with claims, without bytes: who wrote what is kept beside, by object."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from storage.errors import StoreUnavailable
from storage.head.producers import SEQUENCES, Claim, Verdict
from storage.lanes.commits import Bases, Offer
from storage.lanes.lane import Lane
from storage.stores.metadata import Check
from tests.storage.helpers.logs import run_of


def claim(
    producer_id: int, sequence: int, count: int = 1, *, partition: int = 0, epoch: int = 0
) -> Claim:
    return Claim(partition, producer_id, epoch, sequence % SEQUENCES, count)


Record = tuple[Claim, int]
"""A record of a batch, by its number in it. What nobody claims has producer 0."""


@dataclass(slots=True)
class Ledger:
    """What the objects hold."""

    new_id: Callable[[], bytes]
    records: dict[bytes, dict[int, list[Record]]] = field(default_factory=dict)
    failing_writes: int = 0

    async def log(self, lane: Lane, partition: int = 0) -> list[Record]:
        """Return the records of the whole partition, after checking that offsets are dense."""
        head = (await lane.view(0)).head
        found: list[Record] = []
        while len(found) < head.next_offsets[partition]:
            for entry in await lane._runtime.catalog.after(head, partition, len(found)):
                assert entry.base_offset == len(found)
                found += self.records[entry.object_id][partition]
                assert entry.end_offset == len(found)
        return found


@dataclass(slots=True, eq=False)
class Flush:
    """Batches that are written together, as a gateway would."""

    ledger: Ledger
    batches: Sequence[Claim]
    """Those of producer 0 are nobody's."""
    checks: tuple[Check, ...] = ()
    verdicts: dict[Claim, Verdict] = field(default_factory=dict)
    writes: int = 0

    def offer(self) -> Offer:
        self.writes += 1
        object_id = self.ledger.new_id()
        held: dict[int, list[Record]] = {}
        claims: list[Claim] = []
        for batch in self.batches:
            if batch not in self.verdicts:
                own = held.setdefault(batch.partition, [])
                if batch.producer_id:
                    claims.append(batch._replace(row=len(own)))
                own += [(batch, number) for number in range(batch.record_count)]
        self.ledger.records[object_id] = held
        run = run_of(object_id, {partition: len(own) for partition, own in held.items()})

        async def without(rejected: Mapping[int, Verdict]) -> Offer:
            await asyncio.sleep(0)
            for number, verdict in rejected.items():
                self.verdicts[claims[number]._replace(row=0)] = verdict
            if len(self.verdicts) == len(self.batches):
                return Offer(None)
            if self.ledger.failing_writes:
                self.ledger.failing_writes -= 1
                raise StoreUnavailable("the bucket is full of rocks")
            return self.offer()

        return Offer(run, tuple(claims), without, self.checks)

    def told(self, bases: Bases) -> dict[Claim, Verdict]:
        """Return the offset that each batch has, or why it was refused."""
        ends = dict(bases)
        answers: dict[Claim, Verdict] = {}
        for batch in self.batches:
            if batch in self.verdicts:
                answers[batch] = self.verdicts[batch]
            else:
                answers[batch] = ends[batch.partition]
                ends[batch.partition] += batch.record_count
        return answers

    async def commit(self, lane: Lane) -> dict[Claim, Verdict]:
        ticket = lane.enqueue()
        ticket.ready(self.offer())
        return self.told(await ticket.committed)
