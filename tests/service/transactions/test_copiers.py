"""Copiers that die, come back and come back twice, over stores that fail: one copy of each.

Every copier does what any would: take over, look how far the last one came, and copy from there,
some records per transaction, with the offset in the same transaction. Two of them run at the same
time under the same transactional id and do not know of each other; each write to the table may be
refused, lost, done without an answer, or done later.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from service.transactions.guards import TransactionGuard
from service.transactions.state import Ref
from service.transactions.transactions import Instance
from storage.errors import RiachoError
from tests.service.transactions.cluster import TXN, Cluster, Process, offsets_of, with_topic
from tests.service.transactions.test_atomic import records, write
from tests.storage.helpers.faults import random_faults
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

INPUT = [str(number) for number in range(60)]
GROUP = "g"
PARTITIONS = 2
ROUNDS_MAX = 400


class Copier:
    def __init__(self, processes: list[Process], seed: int) -> None:
        self._processes = processes
        self._chance = random.Random(seed)

    @property
    def _process(self) -> Process:
        """Any gateway will do, for any call."""
        return self._chance.choice(self._processes)

    async def run(self) -> None:
        for _ in range(ROUNDS_MAX):
            with suppress(RiachoError):
                if await self._live():
                    return
            # It died, and somebody starts it again: not at once, or they would only fence
            # each other for ever.
            await turns(self._chance.randrange(4000))
        raise AssertionError("it never came to the end")

    async def _live(self) -> bool:
        """Copy until the end, or until something goes wrong, or it dies."""
        instance = await self._process.transactions.init(TXN)
        position = await self._process.offset(GROUP) or 0
        while position < len(INPUT):
            if self._chance.random() < 0.1:
                return False
            size = self._chance.randrange(1, 8)
            chunk = list(enumerate(INPUT))[position : position + size]
            if self._chance.random() < 0.5:
                instance = await self._in_one_call(instance, chunk, position + len(chunk))
            else:
                instance = await self._step_by_step(instance, chunk, position + len(chunk))
            position += len(chunk)
        return True

    async def _step_by_step(
        self, instance: Instance, chunk: list[tuple[int, str]], position: int
    ) -> Instance:
        view = await self._process.transactions.begin(TXN, 60_000, instance)
        sequences = dict.fromkeys(range(PARTITIONS), 0)
        for number, value in chunk:
            partition = number % PARTITIONS
            for _ in range(self._copies()):
                await self._process.stage(
                    view, value, partition=partition, sequence=sequences[partition]
                )
            sequences[partition] += 1
        if self._chance.random() < 0.1:
            await self._process.transactions.abort(view.ref)
            raise RiachoError("changed its mind")
        for _ in range(self._copies()):
            ended = await self._process.transactions.commit(view.ref, offsets_of(GROUP, position))
        return Instance(producer_id=ended.producer_id, epoch=ended.epoch)

    async def _in_one_call(
        self, instance: Instance, chunk: list[tuple[int, str]], position: int
    ) -> Instance:
        of = [records(value, partition=number % PARTITIONS) for number, value in chunk]
        ref = Ref(TXN, instance.producer_id, instance.epoch)
        for _ in range(self._copies()):
            process = self._process
            guard = TransactionGuard(process.items, ref, str(position).encode())
            answer = await write(process, guard, *of, offset=position)
        assert answer.producer_id is not None
        assert answer.epoch is not None
        return Instance(producer_id=answer.producer_id, epoch=answer.epoch)

    def _copies(self) -> int:
        return 2 if self._chance.random() < 0.2 else 1


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_dies_or_fails_there_is_one_copy_in_order(seed: int) -> None:
    cluster = Cluster()
    processes = [await with_topic(cluster), cluster.process(), cluster.process()]
    cluster.metadata.next_fault = random_faults(seed, 0.1)
    copiers = [Copier(processes, 2 * seed + number) for number in range(2)]
    await asyncio.gather(*(copier.run() for copier in copiers))
    cluster.metadata.next_fault = lambda: "none"

    for partition in range(PARTITIONS):
        assert await processes[0].read(partition) == INPUT[partition::PARTITIONS]
    assert await processes[0].offset(GROUP) == len(INPUT)
