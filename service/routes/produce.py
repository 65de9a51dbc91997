"""`POST …/records`: from a body to offsets."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Final, Self, TypeAlias

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from service.http.bodies.fields import Acks
from service.http.bodies.produce import Produced, decode_produce
from service.http.metrics import Metrics
from service.http.requests import JSON, Query, partition_of, read_body
from service.log.gateway import Gateway, Wanted
from service.log.numbering import (
    EPOCH,
    ID,
    NO_SENDER,
    SEQUENCE,
    Numbered,
    SenderHeaders,
    parse_sender,
)
from service.process.limits.admission import Hold
from service.process.limits.record_limits import RecordLimits
from service.registry.edge.late import LateSchemas
from service.security.acls import Operation, ResourceType
from service.security.caller import caller_of
from service.transactions.fences import Fences
from service.transactions.staging import Receipt, Staging
from storage.errors import InvalidAcks, InvalidRequest, RiachoError
from storage.tasks import begin

log = logging.getLogger("riacho.error")

NO_OFFSET: Final = -1
"""Returned for `acks=0`, as in Kafka, and for staged records: the offset is not known yet."""


_SchemaId: TypeAlias = Annotated[
    int | msgspec.UnsetType, msgspec.Meta(description="of the schema that the request names")
]


class Result(msgspec.Struct, gc=False):
    partition: int
    base_offset: Annotated[int, msgspec.Meta(description="-1: not known yet")]
    count: int


class ProduceAnswer(msgspec.Struct, gc=False):
    results: list[Result]
    staged: (
        Annotated[str, msgspec.Meta(description="what a commit may name it by")] | msgspec.UnsetType
    ) = msgspec.UNSET
    key_schema_id: _SchemaId = msgspec.UNSET
    value_schema_id: _SchemaId = msgspec.UNSET

    def of(self, produced: Produced) -> Self:
        """Return it with the schemas by which the records were encoded."""
        if produced.key_schema_id is not None:
            self.key_schema_id = produced.key_schema_id
        if produced.value_schema_id is not None:
            self.value_schema_id = produced.value_schema_id
        return self


class ProduceRoutes:
    def __init__(
        self,
        gateway: Gateway,
        staging: Staging,
        fences: Fences,
        metrics: Metrics,
        schemas: LateSchemas,
    ) -> None:
        self._gateway = gateway
        self._schemas = schemas
        self._staging = staging
        self._fences = fences
        self._metrics = metrics
        self._unacknowledged: set[asyncio.Task[None]] = set()

    async def to_topic(self, request: Request) -> Response:
        """Produce; each record's partition is given, chosen by its key, or spread."""
        return await self._produce(request, None)

    async def to_partition(self, request: Request) -> Response:
        """Produce to one partition."""
        return await self._produce(request, partition_of(request))

    async def aclose(self) -> None:
        """Wait for the writes of `acks=0`, which no request waits for."""
        while self._unacknowledged:
            await asyncio.wait(self._unacknowledged)

    async def _produce(self, request: Request, partition: int | None) -> Response:
        acks = _acks(Query(request))
        sender = parse_sender(request.headers)
        if acks is Acks.NONE and sender is not NO_SENDER:
            raise InvalidAcks(
                "query: acks=0 does not wait, so nothing can be said of a sequence or transaction;"
                " use acks=all, or leave the producer's headers out"
            )
        sender = _authorized(request, sender)
        topic = request.path_params["topic"]
        numbered = await self._numbered(sender)
        with self._gateway.admission.hold() as hold:
            produced, wanted = await self._read(request, topic, partition, hold)
            batch, sent = produced.batch, produced.sent
            if acks is Acks.NONE:
                return await self._without_ack(topic, produced, wanted, hold)
            size_bytes = batch.nbytes
            # Records that are stored as sent are in memory in both forms.
            hold.grow_to(size_bytes + sum(len(each.data) for each in sent))
            name: str | msgspec.UnsetType = msgspec.UNSET
            if sender.transaction_id is not None:
                receipt = await self._stage(sender, topic, batch, size_bytes, wanted)
                results = [Result(p, NO_OFFSET, count) for p, count in receipt.counts.items()]
                name = msgspec.UNSET if receipt.name is None else receipt.name
            else:
                placed = await self._gateway.produce(
                    topic,
                    batch,
                    size_bytes,
                    wanted,
                    numbered,
                    waits_for_all=acks is Acks.ALL,
                    sent=sent,
                )
                results = [Result(p, base, count) for p, (base, count) in placed.items()]
        self._metrics.produced(batch.num_rows, size_bytes)
        return _answer(HTTPStatus.OK, ProduceAnswer(results, name).of(produced))

    async def _numbered(self, sender: SenderHeaders) -> Numbered | None:
        """Return the numbers of an idempotent producer that exists, outside of a transaction."""
        if sender.producer is None or sender.transaction_id is not None:
            return None
        if sender.sequence is None:
            raise InvalidRequest(f"headers: {ID} and {EPOCH} need {SEQUENCE} too")
        producer_id, epoch = sender.producer
        return Numbered(
            producer_id=producer_id,
            epoch=epoch,
            sequence=sender.sequence,
            fence=await self._fences.fence(producer_id, epoch),
        )

    async def _stage(
        self,
        sender: SenderHeaders,
        topic: str,
        batch: pa.RecordBatch,
        size_bytes: int,
        wanted: Wanted,
    ) -> Receipt:
        assert sender.transaction_id is not None
        return await self._staging.stage(
            sender.transaction_id,
            topic,
            batch,
            size_bytes,
            wanted,
            sender.producer,
            sender.sequence,
        )

    async def _read(
        self, request: Request, topic_name: str, partition: int | None, hold: Hold
    ) -> tuple[Produced, Wanted]:
        settings = self._gateway.settings
        caller = caller_of(request.scope)
        caller.quotas.check_produce(caller)
        # Unknown topics are refused before anything is read.
        topic = await self._gateway.topics.get(topic_name)
        if partition is not None and partition >= topic.partition_count:
            # Another gateway may have added it since.
            topic = await self._gateway.topics.read(topic_name)
            topic.check_partition(partition)
        body = await read_body(
            request,
            hold,
            self._gateway.heavy_work,
            request_bytes_max=settings.request_bytes_max,
            decompressed_bytes_max=settings.decompressed_bytes_max,
        )
        await caller.quotas.admit_produce(caller, len(body))
        limits = RecordLimits(
            record_bytes_max=topic.config.record_bytes_max,
            record_count_max=settings.request_records_max,
            request_bytes_max=settings.decompressed_bytes_max,
        )
        content_type = request.headers.get("content-type", "")
        now_ms = self._gateway.world.now_ms()
        found = await self._gateway.heavy_work.convert(
            len(body), lambda: decode_produce(body, content_type, now_ms=now_ms, limits=limits)
        )
        if isinstance(found, Produced):
            produced = found
        else:
            produced = await self._schemas.encode(caller, topic, found)
        if partition is not None:
            _check_only(partition, produced.partitions)
            return produced, partition
        return produced, produced.partitions

    async def _without_ack(
        self, topic: str, produced: Produced, wanted: Wanted, hold: Hold
    ) -> Response:
        batch = produced.batch
        size_bytes = batch.nbytes
        hold.grow_to(size_bytes)
        counts, append = await self._gateway.produce_later(topic, batch, size_bytes, wanted)
        kept = hold.hand_over()

        async def write() -> None:
            with kept:
                try:
                    await append()
                    self._metrics.produced(batch.num_rows, size_bytes)
                except RiachoError as error:
                    log.warning("records sent with acks=0 were lost: %s", error)

        task = begin(write())
        self._unacknowledged.add(task)
        task.add_done_callback(self._unacknowledged.discard)
        results = [Result(p, NO_OFFSET, count) for p, count in counts.items()]
        return _answer(HTTPStatus.ACCEPTED, ProduceAnswer(results).of(produced))


def _authorized(request: Request, sender: SenderHeaders) -> SenderHeaders:
    """Return the sender with the full name of its transaction, once the caller may write in it."""
    if sender.transaction_id is None:
        return sender
    caller = caller_of(request.scope)
    transaction_id = caller.inner_name(sender.transaction_id)
    transactional_id = transaction_id.rsplit(".", 2)[0]
    caller.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return replace(sender, transaction_id=transaction_id)


def _acks(query: Query) -> Acks:
    text = query.text("acks")
    if text is None or text == "-1":
        return Acks.ALL
    try:
        return Acks(text)
    except ValueError:
        raise InvalidAcks(f"query: acks must be 0, 1 or all, not {text!r}") from None


def _check_only(partition: int, wanted: "Sequence[int | None] | pa.Array | None") -> None:
    """Raise `InvalidRequest` if a record requests another partition than `partition`."""
    if isinstance(wanted, pa.Array):
        wanted = wanted.to_pylist()
    for row, other in enumerate(wanted or ()):
        if other is not None and other != partition:
            raise InvalidRequest(
                f"records[{row}].partition: {other}, but the path says {partition}"
            )


def _answer(status: HTTPStatus, answer: ProduceAnswer) -> Response:
    return Response(msgspec.json.encode(answer), status_code=status, media_type=JSON)
