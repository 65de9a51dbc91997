"""Producers that send everything several times to several processes, amid faults."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from storage.errors import DuplicateSequence, OutcomeUnknown, OutOfOrderSequence, RiachoError
from storage.head.producers import Claim, Verdict
from storage.lanes.lane import Lane
from tests.storage.helpers.claims import claim
from tests.storage.helpers.faults import FaultyMetadata, random_faults
from tests.storage.helpers.worlds import TOPIC_ID, new_runtime, turns
from tests.storage.lanes.test_idempotence import Scene, new_scene

pytestmark = pytest.mark.anyio


class Producer:
    """A client with several batches in the air, which sends each until it is told where it is."""

    def __init__(self, producer_id: int, partition: int, counts: list[int]) -> None:
        self.batches: list[Claim] = []
        for count in counts:
            number = sum(each.record_count for each in self.batches)
            self.batches.append(claim(producer_id, number, count, partition=partition))
        self.settled = 0
        self.offsets: dict[Claim, int] = {}

    def in_the_air(self) -> list[Claim]:
        """Return what it may send now: five batches at most, answered or not."""
        return self.batches[self.settled : self.settled + 5]

    def told(self, batch: Claim, answer: Verdict) -> None:
        if isinstance(answer, int):
            assert self.offsets.setdefault(batch, answer) == answer
        elif isinstance(answer, DuplicateSequence):
            assert batch in self.offsets  # A copy that was long on its way.
        else:
            assert isinstance(answer, OutOfOrderSequence), answer
        while self.settled < len(self.batches) and self.batches[self.settled] in self.offsets:
            self.settled += 1


class Clients:
    """Producers that send to any of three processes, in any order, several times."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.chance = scene, random.Random(seed)
        self.stores = [
            FaultyMetadata(scene.table, random_faults(seed * 10 + n, 0.4)) for n in range(3)
        ]
        self.processes = []
        for number, store in enumerate(self.stores):
            runtime = new_runtime(store, scene.objects, clock=scene.clock, seed=20 + number)
            if seed % 2:
                runtime.inline_bytes_max = 100  # Windows leave the head all the time.
            self.processes.append(Lane(TOPIC_ID, 0, runtime))
        self.producers = [
            Producer(2 * n + 2, n % 2, [self.chance.randint(1, 4) for _ in range(12)])
            for n in range(4)
        ]

        self.plain: dict[Claim, Verdict] = {}
        """What became of records without a claim, which are sent once."""

    async def send(self, lane: Lane, chosen: Mapping[Claim, Producer]) -> None:
        await turns(self.chance.choice([0, 0, 2, 10]))  # On its way.
        plain = claim(0, len(self.plain), partition=self.chance.randrange(2))  # Nobody's.
        self.plain[plain] = OutcomeUnknown("it is on its way")
        try:
            answers = await self.scene.flush(*chosen, plain).commit(lane)
        except RiachoError as error:
            self.plain[plain] = error
            return  # It is sent again, but for the plain one.
        self.plain[plain] = answers[plain]
        for batch, sender in chosen.items():
            sender.told(batch, answers[batch])

    async def send_at_random(self, times: int) -> None:
        waiting: list[asyncio.Task[None]] = []
        for _ in range(times):
            self.chance.choice(self.stores).failing_gets = self.chance.choice([0, 0, 0, 1])
            self.scene.ledger.failing_writes = self.chance.choice([0, 0, 0, 1])
            chosen = {
                self.chance.choice(sender.in_the_air()): sender
                for sender in self.chance.sample(self.producers, self.chance.randint(1, 4))
                if sender.in_the_air()
            }
            lane = self.chance.choice(self.processes)
            waiting.append(asyncio.create_task(self.send(lane, chosen)))
            await turns(self.chance.choice([0, 1, 5]))
        await asyncio.gather(*waiting)

    async def finish(self) -> None:
        """Let the faults end and what is late arrive, then send what is missing, in order."""
        for store in self.stores:
            store.next_fault, store.failing_gets = (lambda: "none"), 0
        self.scene.ledger.failing_writes = 0
        await turns(200)
        for sender in self.producers:
            for batch in sender.batches[sender.settled :]:
                await self.send(self.processes[0], {batch: sender})


@pytest.mark.parametrize("seed", range(20))
async def test_copies_sent_everywhere_amid_faults_are_one_batch_in_order(seed: int) -> None:
    scene = await new_scene()
    clients = Clients(scene, seed)

    await clients.send_at_random(400)
    await clients.finish()

    logs = [await scene.log(partition) for partition in range(2)]
    for sender in clients.producers:
        first = sender.batches[0]
        own = [each for each in logs[first.partition] if each.producer_id == first.producer_id]
        assert own == sender.batches
        assert sender.settled == len(sender.batches)
        records = await scene.ledger.log(scene.process(9), first.partition)
        for batch, offset in sender.offsets.items():
            assert records[offset] == (batch, 0)
    for plain, outcome in clients.plain.items():
        times = logs[plain.partition].count(plain)
        if isinstance(outcome, RiachoError):
            assert times <= outcome.may_have_applied
        else:
            assert times == 1
