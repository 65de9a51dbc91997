"""Copiers as actors: they read, process and write in transactions, and die at any moment.

Each has a transactional id, and writes by HTTP or by Kafka's protocol for as long as it lives. A
replaced copier continues for a while as a zombie, next to the one that replaced it. Source
partitions are assigned to copiers for ever, or by a group.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.checker.transaction_rules import (
    ABORTED,
    BY_KAFKA,
    COMMITTED,
    FENCED,
    REFUSED,
    UNKNOWN,
    Attempt,
    Instance,
    TransactionHistory,
)
from tests.simulation.asking import Asking, Over
from tests.simulation.copier_plan import TIMEOUT_MS_MAX, CopierPlan
from tests.simulation.http import Refused
from tests.simulation.kafka.transactions import KafkaProducer, KafkaTransactions

SOURCE = "source"
COPIES = "copies"
GROUP = "copiers"
SESSION_S = 4
TRIES_MAX = 4


@dataclass
class Life:
    """The state of one instance of a copier."""

    transactional_id: str
    partitions: list[int]
    producer_id: int = 0
    epoch: int = 0
    positions: dict[int, int] | None = None
    """None: not looked up yet."""
    member_id: str | None = None
    generation: int = 0
    owned: set[int] = field(default_factory=set)
    kafka: KafkaProducer | None = None
    """Writes for this instance, if it does not write by HTTP."""


@dataclass
class Work:
    """Records that were read, and the offsets after them."""

    originals: list[str]
    offsets: dict[int, int]


class Copiers:
    def __init__(
        self,
        plan: CopierPlan,
        chance: random.Random,
        now_s: Callable[[], float],
        history: TransactionHistory,
        asking: Asking,
        kafka: KafkaTransactions | None = None,
        kafka_share: float = 0.0,
    ) -> None:
        self.plan = plan
        self.history = history
        self.is_calm = False
        self._chance = chance
        self._now_s = now_s
        self._asking = asking
        self._kafka = kafka
        self._kafka_share = kafka_share
        self._alive: dict[asyncio.Task[None], None] = {}
        """All running copiers, zombies included."""

    def calm_down(self) -> None:
        self.is_calm = True

    async def keep(self, number: int) -> None:
        """Keep one copier with this transactional id running."""
        every = self.plan.copiers
        partitions = [p for p in range(self.plan.source_partitions) if p % every == number]
        while True:
            life = Life(f"copier-{number}", partitions)
            if self._kafka is not None and self._kafka.chance.random() < self._kafka_share:
                is_new = self._kafka.chance.random() < 0.5
                life.kafka = self._kafka.producer(life.transactional_id, is_new=is_new)
            task = self._start(self._live(life))
            while not task.done():
                await asyncio.wait([task], timeout=1)
                if not self.is_calm and self._chance.random() < 1 / self.plan.life_s:
                    break
            if self._chance.random() < 0.5:
                task.cancel()
            else:
                self._asking.note(f"{life.transactional_id} is a zombie")

    def stop(self) -> None:
        for task in tuple(self._alive):
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._alive[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._alive.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.history.errors.append(f"a copier failed: {task.exception()!r}")

    async def _live(self, life: Life) -> None:
        try:
            await self._introduce(life)
            while True:
                work = await self._read(life)
                if not work.originals:
                    await asyncio.sleep(2)
                    continue
                if self._chance.random() < self.plan.pauses and not self.is_calm:
                    # Afterwards another copier may own the records that were read.
                    await asyncio.sleep(self._chance.uniform(0.5, 6) * SESSION_S)
                if life.kafka is not None:
                    await self._copy_by_kafka(life, life.kafka, work)
                elif self._chance.random() < self.plan.in_one_call:
                    await self._copy_in_one_call(life, work)
                else:
                    await self._copy(life, work)
        except Over as error:
            self._asking.note(f"{life.transactional_id} {life.epoch} is over: {error}")
        except Refused as error:
            self._asking.complain(life.transactional_id, error)

    async def _introduce(self, life: Life) -> None:
        """Become a new instance: by requesting one, or by an implicit beginning."""
        began_s = self._now_s()
        if life.kafka is not None:
            await life.kafka.init(self._timeout_ms)
            life.producer_id, life.epoch = life.kafka.pair
        else:
            path = "/v1/producers" if self._chance.random() < 0.7 else "/v1/transactions"
            answer = await self._asking.persist(
                "POST", path, {"transactional_id": life.transactional_id}
            )
            life.producer_id, life.epoch = answer["producer_id"], answer["epoch"]
        life.positions = None
        self._announced(life, began_s)

    def _announced(self, life: Life, began_s: float) -> None:
        self.history.instances.append(
            Instance(life.transactional_id, life.producer_id, life.epoch, self._now_s(), began_s)
        )

    # Reading

    async def _read(self, life: Life) -> Work:
        work = Work([], {})
        if self.plan.in_group:
            await self._poll(life, work)
            return work
        if life.positions is None:
            life.positions = await self._committed(life)
        for partition in life.partitions:
            offset = life.positions.get(partition, 0)
            count = self._chance.randint(1, 6)
            path = f"/v1/topics/{SOURCE}/partitions/{partition}/records"
            answer = await self._asking.persist(
                "GET", f"{path}?offset={offset}&max_records={count}"
            )
            _take(work, partition, answer)
        return work

    async def _committed(self, life: Life) -> dict[int, int]:
        try:
            answer = await self._asking.persist("GET", f"/v1/groups/{GROUP}/offsets")
        except Refused as error:
            if error.code != "GROUP_ID_NOT_FOUND":
                raise
            return {}
        found = {one["partition"]: one["offset"] for one in answer["offsets"]}
        return {partition: found.get(partition, 0) for partition in life.partitions}

    async def _poll(self, life: Life, work: Work) -> None:
        if life.member_id is None:
            body = {"topics": [SOURCE], "session_timeout_ms": SESSION_S * 1000}
            path = f"/v1/groups/{GROUP}/members"
            self._hear(life, await self._asking.persist("POST", path, body))
        positions = life.positions or {}
        body = {
            "generation": life.generation,
            "owned": [{"topic": SOURCE, "partition": p} for p in sorted(life.owned)],
            "positions": [
                {"topic": SOURCE, "partition": p, "offset": o} for p, o in positions.items()
            ],
            "max_records": self._chance.randint(1, 12),
            "max_wait_ms": 0,
        }
        path = f"/v1/groups/{GROUP}/members/{life.member_id}"
        try:
            answer = await self._poll_or_beat(path, body)
        except Refused as error:
            if error.code != "UNKNOWN_MEMBER_ID":
                raise
            life.member_id, life.positions, life.owned = None, None, set()
            return
        self._hear(life, answer)
        for each in answer.get("partitions", ()):
            if "error" not in each and each["partition"] in life.owned:
                _take(work, each["partition"], each)

    async def _poll_or_beat(self, path: str, body: Any) -> Any:
        try:
            return await self._asking.persist("POST", f"{path}/poll", body)
        except Refused as error:
            if error.code != "ILLEGAL_GENERATION":
                raise
        beat = {"generation": body["generation"], "owned": body["owned"]}
        return await self._asking.persist("POST", f"{path}/heartbeat", beat)

    def _hear(self, life: Life, answer: Any) -> None:
        life.member_id = answer.get("member_id", life.member_id)
        life.generation = answer["generation"]
        life.owned = {place["partition"] for place in answer["assignment"]}
        positions = life.positions or {}
        life.positions = {p: o for p, o in positions.items() if p in life.owned}

    # Writing

    @property
    def _timeout_ms(self) -> int:
        return TIMEOUT_MS_MAX if self.is_calm else self.plan.timeout_ms

    async def _copy_by_kafka(self, life: Life, producer: KafkaProducer, work: Work) -> None:
        """Copy in a transaction of Kafka's, in a new epoch if what came before is in doubt."""
        if producer.needs_epoch:
            began_s = self._now_s()
            await producer.init(self._timeout_ms, again=True)
            life.producer_id, life.epoch = producer.pair
            self._announced(life, began_s)
        pair = producer.pair
        name = f"{life.transactional_id}.{pair[0]}.{pair[1]}{BY_KAFKA}{len(self.history.attempts)}"
        values = self._values(name, work)
        self.history.attempts.append(Attempt(name, values, work.offsets))
        wants = COMMITTED if await self._sent_by_kafka(producer, values, work) else ABORTED
        answer = await producer.end(name, wants)
        life.positions = {**(life.positions or {}), **work.offsets}
        if answer != COMMITTED:
            life.positions = None
        if answer == UNKNOWN:
            # Its outcome is decided before a new instance exists.
            return await self._introduce(life)
        if answer != wants:
            await producer.end(name, ABORTED)
        elif producer.generation == "newer" and self._chance.random() < 0.5 and not self.is_calm:
            self._start(producer.haunt(name, wants, pair))
        life.producer_id, life.epoch = producer.pair
        return None

    async def _sent_by_kafka(
        self,
        producer: KafkaProducer,
        values: Mapping[tuple[str, int], tuple[str, ...]],
        work: Work,
    ) -> bool:
        """Return whether everything is there, and is to be committed."""
        if not await producer.announce([partition for _, partition in values]):
            return False
        is_first = self._chance.random() < 0.3
        if is_first and not await producer.send_offsets(GROUP, SOURCE, work.offsets):
            return False
        if not await producer.write(values):
            return False
        if not is_first and not await producer.send_offsets(GROUP, SOURCE, work.offsets):
            return False
        return self._chance.random() >= self.plan.aborts

    async def _copy(self, life: Life, work: Work) -> None:
        """Copy in a transaction of several calls."""
        body = {
            "transactional_id": life.transactional_id,
            "timeout_ms": self._timeout_ms,
        }
        body |= {"producer_id": life.producer_id, "epoch": life.epoch}
        try:
            answer = await self._asking.persist("POST", "/v1/transactions", body)
        except Refused as error:
            if error.code != REFUSED:
                raise
            return await self._introduce(life)  # It was begun before, and has timed out.
        name = answer["transaction_id"]
        values = self._values(name, work)
        self.history.attempts.append(Attempt(name, values, work.offsets))
        wants = COMMITTED
        if not await self._stage(name, values) or self._chance.random() < self.plan.aborts:
            wants = ABORTED
        body = {"offsets": self._offsets(life, work)} if wants == COMMITTED else {}
        if await self._end(life, name, wants, body) == COMMITTED:
            life.positions = {**(life.positions or {}), **work.offsets}
        return None

    async def _end(self, life: Life, name: str, wants: str, body: Any) -> str:
        """Request an end until the outcome is known; return the outcome."""
        verb = "commit" if wants == COMMITTED else "abort"
        answer = await self._settle(life, name, wants, f"/v1/transactions/{name}/{verb}", body)
        if answer != COMMITTED:
            life.positions = None
        if answer not in {wants, UNKNOWN} and wants == COMMITTED:
            # It timed out, or belongs to an outdated generation.
            await self._end(life, name, ABORTED, {})
        return answer

    async def _settle(
        self,
        life: Life,
        name: str,
        wants: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        for _ in range(self._asking.tries_max):
            ended = await self._asking.ask(name, wants, path, body, headers)
            if ended.next_epoch is not None:
                life.producer_id, life.epoch = ended.next_epoch
            if ended.answer == FENCED:
                raise Over("fenced")
            if ended.is_final:
                if self._chance.random() < 0.5 and not self.is_calm:
                    self._start(self._haunt(name, wants, path, body, headers))
                return ended.answer
            await self._asking.pause()
        # Its outcome is decided before a new instance exists.
        await self._introduce(life)
        return UNKNOWN

    async def _haunt(
        self, name: str, wants: str, path: str, body: Any, headers: Mapping[str, str] | None
    ) -> None:
        """Long after the end, request the same end again, or the opposite one."""
        await asyncio.sleep(self._chance.expovariate(0.2))
        if self._chance.random() < 0.3 and headers is None:
            wants = ABORTED if wants == COMMITTED else COMMITTED
            path = path.rpartition("/")[0] + ("/abort" if wants == ABORTED else "/commit")
            body = {}
        await self._asking.ask(name, wants, path, body, headers)

    async def _copy_in_one_call(self, life: Life, work: Work) -> None:
        # A refused attempt leaves its epoch to the next one.
        number = len(self.history.attempts)
        name = f"{life.transactional_id}.{life.producer_id}.{life.epoch}!{number}"
        values = self._values(name, work)
        self.history.attempts.append(Attempt(name, values, work.offsets))
        records = [
            {"topic": topic, "partition": partition, "value": value}
            for (topic, partition), of in values.items()
            for value in of
        ]
        body = {"records": records, "offsets": self._offsets(life, work)}
        headers = {
            "riacho-producer-id": str(life.producer_id),
            "riacho-producer-epoch": str(life.epoch),
        }
        answer = await self._settle(life, name, COMMITTED, "/v1/atomic", body, headers)
        is_done = answer == COMMITTED
        life.positions = {**(life.positions or {}), **work.offsets} if is_done else None
        if answer == REFUSED:
            # The transaction that began with this instance is still open.
            await self._introduce(life)

    async def _stage(self, name: str, values: Mapping[tuple[str, int], tuple[str, ...]]) -> bool:
        """Write the records in several requests; return whether all of them are staged."""
        is_numbered = self._chance.random() < 0.6
        requests: list[tuple[list[Any], str | None]] = []
        for (_, partition), of in values.items():
            cut = self._chance.randint(0, len(of))
            for first, part in ((0, of[:cut]), (cut, of[cut:])):
                if part:
                    records = [{"partition": partition, "value": value} for value in part]
                    requests.append((records, f"{partition}={first}" if is_numbered else None))
        if is_numbered and self._chance.random() < 0.5:
            done = await asyncio.gather(*(self._stage_one(name, *each) for each in requests))
            return all(done)
        for each in requests:
            if not await self._stage_one(name, *each):
                return False
        return True

    async def _stage_one(self, name: str, records: list[Any], sequence: str | None) -> bool:
        headers = {"riacho-transaction": name}
        if sequence is not None:
            headers["riacho-sequence"] = sequence
        path = f"/v1/topics/{COPIES}/records"
        for _ in range(TRIES_MAX if sequence is not None else 1):
            try:
                await self._asking.call(
                    "POST", path, {"records": records}, headers, once=sequence is None
                )
                return True
            except TimeoutError:
                pass
            except Refused as error:
                if error.code in {"INVALID_TXN_STATE", FENCED}:
                    return False
                if not error.passes and error.code != "OUT_OF_ORDER_SEQUENCE_NUMBER":
                    self._asking.complain("stage", error)
                    return False
            await self._asking.pause()
        return False

    def _values(self, name: str, work: Work) -> dict[tuple[str, int], tuple[str, ...]]:
        values: dict[tuple[str, int], tuple[str, ...]] = {}
        for original in work.originals:
            source, _, number = original.partition(":")
            place = COPIES, (int(source) + int(number) // 4) % self.plan.partitions
            values[place] = (*values.get(place, ()), f"{original}@{name}")
        return values

    def _offsets(self, life: Life, work: Work) -> Any:
        offsets = [
            {"topic": SOURCE, "partition": partition, "offset": offset}
            for partition, offset in work.offsets.items()
        ]
        if life.member_id is None:
            return {"group": GROUP, "offsets": offsets}
        member = {"member_id": life.member_id, "generation": life.generation}
        return {"group": GROUP, "offsets": offsets, **member}


def _take(work: Work, partition: int, answer: Any) -> None:
    if answer["records"]:
        work.originals += [record["value"] for record in answer["records"]]
        work.offsets[partition] = answer["next_offset"]
