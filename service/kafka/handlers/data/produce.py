"""Produce: batches for partitions, each answered by itself.

The requests of a connection are appended in the order of arrival, though many are under way: each
takes its place in line before anything is awaited, is checked while others are written, and leaves
the line when its records have joined a flush. So a request waits for those before it to be
checked, never to be written.

A large batch is checked while it is written itself, and committed when it has passed: idempotent
librdkafka has one request of a partition under way, so what it waits for, it waits for in a row.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from service.http.metrics import Metrics
from service.kafka.brokers.brokers import LEADER_EPOCH, Brokers
from service.kafka.call import KafkaCall
from service.kafka.failures import code_of, throttle_ms_of
from service.kafka.handlers.data.recent_failures import RecentFailures
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from service.kafka.topic_ids import TopicIds
from service.log.gateway import Gateway
from service.log.kafka_batches import is_kept
from service.log.lane_buffers import LateCheck
from service.log.numbering import Numbered
from service.process.limits.heavy_work import INLINE_BYTES_MAX
from service.security.acls import Operation, ResourceType
from service.transactions.fences import Fences
from storage.errors import (
    BadBatch,
    DuplicateSequence,
    ProducerForgotten,
    QuotaExceeded,
    RiachoError,
    SchemaMismatch,
    ShuttingDown,
)
from storage.formats.kafka.batches import LIGHT_BYTES, Batches, check, claimed_by, is_light
from storage.formats.partitions import PartitionNumber
from storage.tasks import Arrivals, in_turns
from storage.topics.topics import Topic

ACKS: Final = {-1, 0, 1}

EARLY_BYTES_MIN: Final = 32 * 1024
"""Batches from this size on are written while they are checked; for less it saves no time."""

THROTTLE_S_MAX: Final = 30.0
"""A request waits this long for its caller's quota, and keeps its connection waiting, as Kafka
does; then it is refused."""

Transactional: TypeAlias = Callable[
    [KafkaCall, ProduceRequest, Topic, PartitionNumber, Batches], Awaitable[int]
]
"""Writes a batch of a transaction; returns the offset to report."""


@dataclass(slots=True, kw_only=True)
class _Part:
    """What was sent for one partition, and its answer."""

    sent: PartitionProduceData
    answer: PartitionProduceResponse
    topic: Topic | None = None
    batches: Batches | None = None
    check: LateCheck | None = None
    """Checks `batches` while they are written; None: they are checked."""
    numbered: Numbered | None = None
    error: RiachoError | None = None

    @property
    def is_ready(self) -> bool:
        return self.batches is not None and not self.answer.error_code


class Produce:
    def __init__(
        self,
        gateway: Gateway,
        brokers: Brokers,
        ids: TopicIds,
        fences: Fences,
        metrics: Metrics,
        transactional: Transactional,
    ) -> None:
        self._gateway = gateway
        self._brokers = brokers
        self._ids = ids
        self._fences = fences
        self._metrics = metrics
        self._transactional = transactional
        self._failures = RecentFailures(gateway.world.monotonic_s)
        self._arriving = Arrivals[int]()
        """By connection: requests that have not joined a flush yet."""

    async def answer(self, call: KafkaCall, request: ProduceRequest) -> ProduceResponse | None:
        """Append everything; return None for acks=0.

        Raises for acks=0 what a partition met, so that the connection is closed: a client that
        waits for no answer has no other way to hear of it.
        """
        arrival = self._arriving.join(id(call.peer))
        response = ProduceResponse()
        try:
            parts = await self._prepared(call, request, response)
            await arrival.turn()
            ready = [part for part in parts if part.is_ready]
            appending = asyncio.gather(*(self._append(call, request, part) for part in ready[1:]))
            if len(ready) > 1:
                # They begin in the next turn of the loop, and whoever comes next after them.
                await asyncio.sleep(0)
        finally:
            # Appends that begin now, in this turn of the loop, come before those of the next.
            arrival.leave()
        if ready:
            await self._append(call, request, ready[0])
        await appending
        if request.acks == 0:
            for part in parts:
                if part.answer.error_code:
                    raise part.error or BadBatch("a batch was refused", "INVALID_RECORD")
            return None
        await self._name_leaders(call, parts, response)
        return response

    # Before the turn

    async def _prepared(
        self, call: KafkaCall, request: ProduceRequest, response: ProduceResponse
    ) -> list[_Part]:
        """Return all parts, those that can be appended as checked batches."""
        refused = self._refused(call, request)
        parts: list[_Part] = []
        async for wanted in in_turns(request.topic_data):
            answer = TopicProduceResponse(name=wanted.name, topic_id=wanted.topic_id)
            response.responses.append(answer)
            of_topic = [
                _Part(sent=sent, answer=_unanswered(sent)) for sent in wanted.partition_data
            ]
            answer.partition_responses = [part.answer for part in of_topic]
            parts += of_topic
            code = refused
            if code is None:
                code = await self._find(call, wanted, of_topic)
            if code is not None:
                for part in of_topic:
                    part.answer.error_code = code
        checked = [part for part in parts if not part.answer.error_code]
        async for part in in_turns(checked):
            await self._check(call, part, is_transaction=request.transactional_id is not None)
        await self._admit(call, request, parts, response)
        return parts

    def _refused(self, call: KafkaCall, request: ProduceRequest) -> ErrorCode | None:
        """Return why nothing of the request is appended, if that is so."""
        if self._gateway.draining.is_set():
            return code_of(ShuttingDown("this gateway is shutting down"))
        if request.acks not in ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if request.transactional_id is not None:
            name = call.caller.inner_name(request.transactional_id)
            if not call.caller.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return None

    async def _find(
        self, call: KafkaCall, wanted: TopicProduceData, parts: Sequence[_Part]
    ) -> ErrorCode | None:
        """Give each part its topic; return why there is none."""
        try:
            topic = await self._topic(call, wanted)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            call.caller.require_topic(Operation.WRITE, topic.name)
            if any(part.sent.index >= topic.partition_count for part in parts):
                # Another gateway may have added it since.
                topic = await self._gateway.topics.read(topic.name)
        except RiachoError as error:
            return code_of(error)
        for part in parts:
            part.topic = topic
            if not 0 <= part.sent.index < topic.partition_count:
                part.answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    async def _topic(self, call: KafkaCall, wanted: TopicProduceData) -> Topic | None:
        if call.version >= 13:
            return await self._ids.topic(wanted.topic_id)
        name = call.caller.inner_name(wanted.name)
        call.caller.require_topic(Operation.WRITE, name)
        return await self._gateway.topics.get(name)

    async def _check(self, call: KafkaCall, part: _Part, *, is_transaction: bool) -> None:
        """Give the part its batches, or the error of what was sent."""
        topic, data = part.topic, part.sent.records
        assert topic is not None
        try:
            if not data:
                raise BadBatch("there is no batch", "INVALID_RECORD")
            batches = claimed_by(data)
            is_early = self._is_written_early(topic, batches)
            if not is_early:
                batches = await self._checked(data, topic)
            if call.version < 7 and batches.codec == "zstd":
                raise BadBatch("zstd needs Produce v7", "UNSUPPORTED_COMPRESSION_TYPE")
            if batches.is_transactional and not is_transaction:
                part.answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                return
            if batches.claim is not None and not batches.is_transactional:
                part.numbered = await self._numbered(batches)
            if is_early:
                part.check = partial(self._checked, data, topic)
            part.batches = batches
        except RiachoError as error:
            self._refuse(call, part, error)

    def _is_written_early(self, topic: Topic, claimed: Batches) -> bool:
        """Whether a batch is written while it is checked.

        Not those whose check may take long: others that are written with it wait for it.
        """
        return (
            EARLY_BYTES_MIN <= len(claimed.data) <= LIGHT_BYTES
            and is_light(claimed.data)
            and claimed.codec != "gzip"
            and not claimed.is_transactional
            and not topic.schema_rules
            and is_kept(topic.config, claimed)
        )

    async def _checked(self, data: bytes | memoryview, topic: Topic) -> Batches:
        """Return the checked batch; in a thread if that may take long, however small it came."""
        heavy_work = self._gateway.heavy_work
        limit = self._gateway.settings.decompressed_bytes_max

        def within(bytes_max: int) -> Batches:
            return check(
                data,
                record_bytes_max=topic.config.record_bytes_max,
                needs_keys=topic.config.is_compacted,
                decompressed_bytes_max=bytes_max,
                keeps_open=bool(topic.schema_rules),
            )

        if len(data) <= LIGHT_BYTES and is_light(data):
            size = min(len(data), INLINE_BYTES_MAX)
            try:
                return await heavy_work.convert(size, lambda: within(min(limit, LIGHT_BYTES)))
            except BadBatch as error:
                if error.fault != "MESSAGE_TOO_LARGE":
                    raise
        return await heavy_work.convert(limit, lambda: within(limit))

    async def _numbered(self, batches: Batches) -> Numbered:
        claim = batches.claim
        assert claim is not None
        return Numbered(
            producer_id=claim.producer_id,
            epoch=claim.epoch,
            sequence=claim.base_sequence,
            fence=await self._fences.fence(claim.producer_id, claim.epoch),
        )

    async def _admit(
        self,
        call: KafkaCall,
        request: ProduceRequest,
        parts: Sequence[_Part],
        response: ProduceResponse,
    ) -> None:
        """Wait for the quota of the caller; refuse everything if that takes too long."""
        ready = [part for part in parts if part.is_ready]
        size_bytes = sum(len(part.batches.data) for part in ready if part.batches is not None)
        if not ready:
            return
        world = self._gateway.world
        until_s = world.monotonic_s() + THROTTLE_S_MAX
        while True:
            try:
                await call.caller.quotas.admit_produce(call.caller, size_bytes)
            except QuotaExceeded as error:
                wait_s = error.throttle_ms / 1000
                if world.monotonic_s() + wait_s > until_s or self._gateway.draining.is_set():
                    response.throttle_time_ms = throttle_ms_of(error)
                    for part in ready:
                        self._refuse(call, part, error)
                    return
                await world.sleep(wait_s)
            else:
                return

    # In turn

    async def _append(self, call: KafkaCall, request: ProduceRequest, part: _Part) -> None:
        topic, batches = part.topic, part.batches
        assert topic is not None
        assert batches is not None
        partition = PartitionNumber(part.sent.index)
        answer = part.answer
        try:
            if batches.is_transactional:
                offset = await self._transactional(call, request, topic, partition, batches)
            else:
                offset = await self._gateway.produce_batches(
                    topic.name,
                    partition,
                    batches,
                    part.numbered,
                    waits_for_all=request.acks == -1,
                    check=part.check,
                )
        except DuplicateSequence:
            # It is in the log once; clients count this as success, whatever the offset.
            answer.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        except RiachoError as error:
            self._failed(call, part, topic, partition, error)
        else:
            answer.base_offset = offset
            if topic.config.stamps_appends:
                answer.log_append_time_ms = self._gateway.world.now_ms()
            self._metrics.produced(batches.count, len(batches.data))
        answer.log_start_offset = await self._log_start(topic, partition, answer.error_code)

    def _failed(
        self,
        call: KafkaCall,
        part: _Part,
        topic: Topic,
        partition: PartitionNumber,
        error: RiachoError,
    ) -> None:
        self._refuse(call, part, error)
        batches = part.batches
        if batches is None or batches.claim is None or isinstance(error, BadBatch):
            return
        place = topic.topic_id, partition
        is_forgotten = isinstance(error, ProducerForgotten)
        if is_forgotten and not self._failures.precede(*place, batches.claim):
            part.answer.error_code = ErrorCode.UNKNOWN_PRODUCER_ID
            return
        self._failures.note(*place, batches.claim, batches.count)

    def _refuse(self, call: KafkaCall, part: _Part, error: RiachoError) -> None:
        answer = part.answer
        answer.error_code = _code(error)
        answer.base_offset = -1
        answer.error_message = call.caller.outer_text(str(error))
        part.error = error
        if isinstance(error, SchemaMismatch):
            answer.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=each.index,
                    batch_index_error_message=call.caller.outer_text(str(each)),
                )
                for each in error.refused
            ]
        elif isinstance(error, BadBatch):
            # None if all of it is wrong: clients send those again that are not named.
            answer.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=index, batch_index_error_message=answer.error_message
                )
                for index in error.records
            ]

    async def _log_start(self, topic: Topic, partition: PartitionNumber, code: int) -> int:
        """Return the log start if it is known; read it for who is to begin anew there."""
        number, local = topic.lane_of(partition)
        lane = self._gateway.lanes.lane(topic.topic_id, number)
        try:
            view = lane.watched.latest
            if view is None and code == ErrorCode.UNKNOWN_PRODUCER_ID:
                view = await lane.view(0)
        except RiachoError:
            view = None
        if view is None:
            return 0 if code == ErrorCode.UNKNOWN_PRODUCER_ID else -1
        return view.head.log_starts[local] if local < view.head.partition_count else -1

    async def _name_leaders(
        self, call: KafkaCall, parts: Sequence[_Part], response: ProduceResponse
    ) -> None:
        """Name the leaders of the partitions that this gateway does not take any more."""
        gone = [
            part
            for part in parts
            if part.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and part.topic is not None
        ]
        if call.version < 10 or not gone:
            return
        leaders = await self._brokers.leaders(call.client_id)
        named = {}
        for part in gone:
            assert part.topic is not None
            leader = leaders.of(part.topic, PartitionNumber(part.sent.index))
            named[leader.node_id] = leader
            part.answer.current_leader = ProduceLeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=LEADER_EPOCH
            )
        response.node_endpoints = [
            ProduceNodeEndpoint(node_id=b.node_id, host=b.host, port=b.port, rack=b.zone or None)
            for b in named.values()
        ]


def _unanswered(sent: PartitionProduceData) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=sent.index, error_code=0, base_offset=-1)


def _code(error: RiachoError) -> ErrorCode:
    return ErrorCode[error.fault] if isinstance(error, BadBatch) else code_of(error)
