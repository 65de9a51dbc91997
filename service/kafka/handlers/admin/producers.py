"""DescribeProducers, DescribeTransactions and ListTransactions: who writes, and in what.

Records of a transaction are in no partition before it commits, so no partition has an open one.
"""

from collections.abc import Callable
from typing import Any, Final

from service.kafka.call import KafkaCall
from service.kafka.failures import Asked
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
)
from service.log.partition_info import check_width
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from service.transactions.state import Outcome, Transaction
from storage.errors import InvalidRequest
from storage.formats.partitions import PartitionNumber
from storage.head.producers import SEQUENCES, Window
from storage.tasks import in_turns
from storage.topics.items import parse_topic_name

MINUTE_MS: Final = 60_000

EMPTY, ONGOING = "Empty", "Ongoing"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
STATES: Final = frozenset(
    {EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}
    | {"PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence"}
)
"""Kafka's states. Nothing is ever in those of the second line: to end is one write here."""


class ProducerAdmin:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway
        self._items = parts.transaction_items
        self._brokers = parts.brokers

    async def describe_producers(
        self, call: KafkaCall, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Return the producers that wrote last: those in the heads of lanes."""
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        await self._partition(call.caller, topic, partition)
                        async for partition in in_turns(topic.partition_indexes)
                    ],
                )
                async for topic in in_turns(request.topics)
            ]
        )

    async def _partition(
        self, caller: Caller, topic: DescribeProducersTopicRequest, partition: int
    ) -> PartitionResponse:
        active: list[ProducerState] = []
        with Judged(caller, Asked.PARTITION) as judged:
            name = caller.inner_name(topic.name)
            caller.require(Operation.READ, ResourceType.TOPIC, name)
            parse_topic_name(topic.name)
            found = await self._gateway.topics.get(name)
            number, local = found.lane_of(PartitionNumber(partition))
            head = (await self._gateway.lanes.lane(found.topic_id, number).view(0)).head
            check_width(head, local)
            active = [_producer(w) for w in head.producers if w.partition == local]
        return PartitionResponse(
            partition_index=partition,
            error_code=judged.code,
            error_message=judged.text,
            active_producers=active,
        )

    async def describe_transactions(
        self, call: KafkaCall, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[
                await self._transaction(call.caller, name)
                async for name in in_turns(request.transactional_ids)
            ]
        )

    async def _transaction(self, caller: Caller, name: str) -> DescribeTransactionsTransactionState:
        shown = DescribeTransactionsTransactionState(
            transactional_id=name, transaction_start_time_ms=-1, producer_id=-1, producer_epoch=-1
        )
        with Judged(caller, Asked.COORDINATOR) as judged:
            full = caller.inner_name(name)
            caller.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, full)
            if not name:
                raise InvalidRequest("a transactional id has a name")
            txn = (await self._items.current(full)).txn
            if txn is None:
                raise KafkaRefusal(
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "there is no such transactional id"
                )
            shown.transaction_state = state_of(txn)
            shown.producer_id, shown.producer_epoch = txn.producer_id, txn.epoch
            if txn.open is not None:
                shown.transaction_timeout_ms = txn.open.timeout_ms
                shown.transaction_start_time_ms = txn.open.started_ms
                shown.topics = _touched(caller, txn)
        shown.error_code = judged.code
        return shown

    async def list_transactions(
        self, call: KafkaCall, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """Return those that this broker coordinates: programs ask every broker."""
        response = ListTransactionsResponse(
            unknown_state_filters=[s for s in request.state_filters if s not in STATES]
        )
        with Judged(call.caller, Asked.COORDINATOR) as judged:
            is_meant = self._filter(request)
            own = self._brokers.own.node_id
            for name, known in await self._items.all():
                if known.txn is None or not is_meant(call.caller.outer_name(name), known.txn):
                    continue
                if not call.caller.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
                    continue
                if (await self._brokers.coordinator(name)).node_id != own:
                    continue
                response.transaction_states.append(
                    ListTransactionsTransactionState(
                        transactional_id=call.caller.outer_name(name),
                        producer_id=known.txn.producer_id,
                        transaction_state=state_of(known.txn),
                    )
                )
        response.error_code = judged.code
        return response

    def _filter(self, request: ListTransactionsRequest) -> Callable[[str, Transaction], bool]:
        states = {state for state in request.state_filters if state in STATES}
        producers = set(request.producer_id_filters)
        pattern = _pattern(request.transactional_id_pattern)
        now_ms = self._gateway.world.now_ms()

        def is_meant(name: str, txn: Transaction) -> bool:
            lasts_ms = -1 if txn.open is None else now_ms - txn.open.started_ms
            return (
                (not request.state_filters or state_of(txn) in states)
                and (not producers or txn.producer_id in producers)
                and (request.duration_filter < 0 or lasts_ms > request.duration_filter)
                and (pattern is None or pattern.fullmatch(name) is not None)
            )

        return is_meant


def _pattern(text: str | None) -> Any:
    """Return the pattern that names must match, or raise `KafkaRefusal`; None: any."""
    if not text:
        return None
    # Imported here, as few ask with a pattern.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error:
        raise KafkaRefusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text[:100]!r} is no pattern of RE2"
        ) from None


def state_of(txn: Transaction) -> str:
    """Return Kafka's word for the state of a transactional id."""
    if txn.open is not None:
        return ONGOING
    if txn.ends:
        last = txn.ends[-1]
        if (last.next_producer_id, last.next_epoch) == (txn.producer_id, txn.epoch):
            return COMPLETE_COMMIT if last.outcome is Outcome.COMMITTED else COMPLETE_ABORT
    return EMPTY


def _touched(caller: Caller, txn: Transaction) -> list[TopicData]:
    """Return the partitions written to; as in Kafka, only of topics that the caller may see."""
    assert txn.open is not None
    partitions: dict[str, set[int]] = {}
    for staged in txn.open.staged:
        if caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, staged.topic):
            partitions.setdefault(staged.topic, set()).update(staged.counts())
    return [
        TopicData(topic=caller.outer_name(topic), partitions=sorted(numbers))
        for topic, numbers in sorted(partitions.items())
    ]


def _producer(window: Window) -> ProducerState:
    return ProducerState(
        producer_id=window.producer_id,
        producer_epoch=window.epoch,
        last_sequence=(window.next_sequence - 1) % SEQUENCES,
        last_timestamp=window.used_minute * MINUTE_MS,
        coordinator_epoch=-1,
    )
