"""Flushes with claims but no bytes: a ledger keeps the records of each object."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.errors import StoreUnavailable
from storage.head.producers import SEQUENCES, Claim, Verdict
from storage.lanes.commits import Bases, Offer, RejectedClaims
from storage.lanes.lane import Lane, Ticket
from storage.stores.metadata import Check
from tests.storage.helpers.logs import run_of


def claim(
    producer_id: int, sequence: int, count: int = 1, *, partition: int = 0, epoch: int = 0
) -> Claim:
    return Claim(partition, producer_id, epoch, sequence % SEQUENCES, count)


Record = tuple[Claim, int]
"""A record: its batch and its number in the batch. Records without a claim have producer 0."""


@dataclass(slots=True)
class Ledger:
    """The records that each object holds."""

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
    """Batches of producer 0 have no claim."""
    checks: tuple[Check, ...] = ()
    verdicts: dict[Claim, Verdict] = field(default_factory=dict)
    writes: int = 0
    landing: "asyncio.Task[dict[Claim, Verdict]]" = field(init=False)

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
        return Offer(run, tuple(claims), self.checks)

    async def rest(self, rejected: RejectedClaims, claims: Sequence[Claim]) -> Offer | None:
        """Return what is left, written again."""
        await asyncio.sleep(0)
        for number, verdict in rejected.verdicts.items():
            self.verdicts[claims[number]._replace(row=0)] = verdict
        if len(self.verdicts) == len(self.batches):
            return None
        if self.ledger.failing_writes:
            self.ledger.failing_writes -= 1
            raise StoreUnavailable("the bucket is full of rocks")
        return self.offer()

    def start(self, ticket: Ticket) -> None:
        """Offer it in its turn, and what is left of it if some of it is rejected."""
        offer = self.offer()
        self.landing = asyncio.create_task(self._land(ticket, offer, ticket.ready(offer)))

    async def _land(
        self, ticket: Ticket, offer: Offer, committed: "asyncio.Future[Bases | RejectedClaims]"
    ) -> dict[Claim, Verdict]:
        while isinstance(answer := await committed, RejectedClaims):
            try:
                rest = await self.rest(answer, offer.claims)
            except StoreUnavailable:
                ticket.withdraw()
                raise
            if rest is None:
                ticket.withdraw()
                return self.told({})
            offer = rest
            committed = ticket.ready(offer)
        return self.told(answer)

    def told(self, bases: Bases) -> dict[Claim, Verdict]:
        """Return the offset of each batch, or the reason for its refusal."""
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
        self.start(lane.enqueue())
        return await self.landing
