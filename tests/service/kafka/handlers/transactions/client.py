"""A client of transactions without a socket: of either generation, as patient as real ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from service.log.gateway import Position, Wait
from service.security.caller import ANYONE, Caller
from service.world.clock import World, real_world
from storage.formats.partitions import PartitionNumber
from storage.reading.reader import Budget
from tests.service.kafka.cluster import KafkaGateway, batch
from tests.storage.helpers.worlds import Clock

OLD = {"init": 4, "produce": 10, "partitions": 0, "offsets": 0, "commit_offsets": 3, "end": 1}
NEW = {"init": 5, "produce": 12, "commit_offsets": 5, "end": 5}

PASSING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}


class Refused(Exception):
    """The code of an answer that is no success and does not pass."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


def world_of(clock: Clock) -> World:
    return replace(
        real_world(), now_ms=clock.now_ms, monotonic_s=clock.monotonic_s, sleep=clock.sleep
    )


async def values(gateway: KafkaGateway, topic: str = "t", partition: int = 0) -> list[bytes]:
    """Return what is in the log."""
    found: list[bytes] = []
    while True:
        result = await gateway.gateway.fetch(
            topic,
            PartitionNumber(partition),
            Position(offset=len(found)),
            Budget(records_max=10_000, bytes_max=10**8),
            Wait(),
        )
        for _, records in result.fetched.batches(10**8):
            found += records.column(2).to_pylist()
        if len(found) == result.high_watermark:
            return found


class Client:
    """Sends a request again, to the next gateway, until it has an answer that says something."""

    def __init__(
        self,
        *gateways: KafkaGateway,
        name: str = "copier",
        versions: dict[str, int] = NEW,
        caller: Caller = ANYONE,
    ) -> None:
        self.gateways = list(gateways)
        self.name = name
        self.versions = versions
        self.caller = caller
        self.pair = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def is_new(self) -> bool:
        return self.versions is NEW

    async def _ask(self, call: str, request: Any, code_of: Any) -> Any:
        for _ in range(200):
            self.gateways.append(self.gateways.pop(0))
            answer = await self.gateways[-1].call(self.versions[call], request, caller=self.caller)
            code = code_of(answer)
            if code not in PASSING:
                break
        if code != ErrorCode.NONE:
            raise Refused(code)
        return answer

    async def init(self, timeout_ms: int = 60_000, *, again: bool = False) -> tuple[int, int]:
        known_as = self.pair if again else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known_as[0],
            producer_epoch=known_as[1],
        )
        answer = await self._ask("init", request, lambda answer: answer.error_code)
        self._take((answer.producer_id, answer.producer_epoch))
        return self.pair

    def _take(self, pair: tuple[int, int]) -> None:
        self.pair = pair
        self.sequences = {}

    async def add(self, *partitions: int, topic: str = "t") -> None:
        """Announce partitions, as older clients do."""
        if self.is_new:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def code_of(answer: Any) -> int:
            [found] = answer.results_by_topic_v3_and_below
            return max(each.partition_error_code for each in found.results_by_partition)

        await self._ask("partitions", request, code_of)

    def request(self, *sent: bytes, partition: int = 0, topic: str = "t") -> ProduceRequest:
        """Return the next Produce request for a partition."""
        place = topic, partition
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + len(sent)
        records = batch(*sent, producer=(*self.pair, sequence), is_transactional=True)
        data = [PartitionProduceData(index=partition, records=records)]
        return ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            transactional_id=self.name,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    async def produce(self, request: ProduceRequest) -> int:
        answer = await self._ask(
            "produce", request, lambda a: a.responses[0].partition_responses[0].error_code
        )
        offset = answer.responses[0].partition_responses[0].base_offset
        assert isinstance(offset, int)
        return offset

    async def send(self, *sent: bytes, partition: int = 0, topic: str = "t") -> int:
        await self.add(partition, topic=topic)
        return await self.produce(self.request(*sent, partition=partition, topic=topic))

    async def send_offset(
        self,
        offset: int,
        *,
        group: str = "g",
        member: tuple[str, int] = ("", -1),
        places: Sequence[tuple[str, int]] = (("in", 0),),
    ) -> None:
        if not self.is_new:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.pair[0],
                producer_epoch=self.pair[1],
                group_id=group,
            )
            await self._ask("offsets", request, lambda answer: answer.error_code)
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset
                    )
                ],
            )
            for topic, partition in places
        ]
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            member_id=member[0],
            generation_id=member[1],
            topics=topics,
        )
        await self._ask(
            "commit_offsets",
            commit,
            lambda a: max(p.error_code for t in a.topics for p in t.partitions),
        )

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=is_commit,
        )

    async def end(self, request: EndTxnRequest) -> None:
        answer = await self._ask("end", request, lambda answer: answer.error_code)
        if self.is_new and (answer.producer_id, answer.producer_epoch) != self.pair:
            self._take((answer.producer_id, answer.producer_epoch))

    async def commit(self) -> None:
        await self.end(self.end_request(is_commit=True))

    async def abort(self) -> None:
        await self.end(self.end_request(is_commit=False))
