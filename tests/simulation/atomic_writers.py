"""Writers that write to many partitions in one call, and retry it until it is answered."""

import asyncio
import random
from typing import Any

from tests.checker.transaction_rules import (
    COMMITTED,
    FENCED,
    UNDER_KEY,
    WRITER,
    Attempt,
    Place,
    TransactionHistory,
)
from tests.simulation.asking import Asking, Over
from tests.simulation.http import Refused

ATOMS = "atoms"


class AtomicWriters:
    def __init__(
        self,
        chance: random.Random,
        asking: Asking,
        history: TransactionHistory,
        partitions: int,
        calls: int,
    ) -> None:
        self._chance = chance
        self._asking = asking
        self._history = history
        self._partitions = partitions
        self._calls = calls

    async def live(self, number: int) -> None:
        """Make all calls of one writer; retry each until it has succeeded or is given up."""
        try:
            if number % 2:
                await self._write_under_keys(number)
            else:
                await self._write_numbered(number)
        except Over as error:
            self._asking.note(f"writer {number} is over: {error}")
        except Refused as error:
            self._asking.complain(f"writer {number}", error)

    async def _write_numbered(self, number: int) -> None:
        answer = await self._asking.persist("POST", "/v1/producers", {})
        producer_id, epoch, sequence = answer["producer_id"], 0, 0
        for call in range(self._calls):
            headers = {
                "riacho-producer-id": str(producer_id),
                "riacho-producer-epoch": str(epoch),
                "riacho-sequence": str(sequence),
            }
            name = f"{WRITER}{number}.{epoch}.{call}"
            values = self._values(name)
            if await self._write(name, values, headers):
                sequence += sum(map(len, values.values()))
            else:
                # Its outcome is unknown; with the next epoch it can no longer happen.
                epoch, sequence = epoch + 1, 0
            await asyncio.sleep(self._chance.random())

    async def _write_under_keys(self, number: int) -> None:
        calls = []
        for call in range(self._calls):
            name = f"{UNDER_KEY}{number}.0.{call}"
            values = self._values(name)
            headers = {"idempotency-key": name}
            calls.append(asyncio.create_task(self._write(name, values, headers)))
            await asyncio.sleep(self._chance.random())
        await asyncio.gather(*calls)

    async def _write(
        self, name: str, values: dict[Place, tuple[str, ...]], headers: dict[str, str]
    ) -> bool:
        """Return whether the call is known to have succeeded."""
        self._history.attempts.append(Attempt(name, values))
        records: list[Any] = [
            {"topic": topic, "partition": partition, "value": value}
            for (topic, partition), of in values.items()
            for value in of
        ]
        for _ in range(self._asking.tries_max):
            ended = await self._asking.ask(
                name, COMMITTED, "/v1/atomic", {"records": records}, headers
            )
            if ended.is_final:
                if ended.answer == FENCED:
                    self._history.errors.append(f"{name} was refused, and is of the last epoch")
                return ended.answer == COMMITTED
            await self._asking.pause()
        return False

    def _values(self, name: str) -> dict[Place, tuple[str, ...]]:
        values: dict[Place, tuple[str, ...]] = {}
        for row in range(self._chance.randint(1, 5)):
            place = ATOMS, self._chance.randrange(self._partitions)
            values[place] = (*values.get(place, ()), f"{row}@{name}")
        return values
