"""Routes about producers and transactions. A route translates; it does not decide."""

import hashlib
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.http.bodies.fields import Partition
from service.http.json_requests import check_json, read_json
from service.http.metrics import Metrics
from service.http.requests import JSON, Query, read_body
from service.log.gateway import Gateway
from service.log.numbering import EPOCH, ID, SEQUENCE, TRANSACTION, SenderHeaders, parse_sender
from service.process.limits.record_limits import RecordLimits
from service.routes.bodies.transactions import (
    AbortBody,
    AtomicAnswer,
    BeginAnswer,
    BeginBody,
    CommitBody,
    EndAnswer,
    PartitionResult,
    ProducerAnswer,
    ProducerBody,
    TransactionInfo,
    TransactionList,
    decode_atomic,
)
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller, caller_of
from service.transactions import state
from service.transactions.atomic import Atomic, TopicRecords
from service.transactions.commit import GroupCommit
from service.transactions.guards import (
    Guard,
    KeyGuard,
    SequenceGuard,
    TransactionGuard,
    Unguarded,
)
from service.transactions.ids import ProducerIds, is_transactional
from service.transactions.items import TransactionItems
from service.transactions.state import Ref, Results
from service.transactions.transactions import Instance, Transactions
from service.transactions.views import Ended, View
from storage.errors import InvalidRequest

IDEMPOTENCY_KEY: Final = "idempotency-key"
REPLAYED: Final = "idempotency-replayed"
KEY_CHARS_MAX: Final = 255

_DIGEST_BYTES: Final = 16

_PRODUCER: Final = msgspec.json.Decoder(ProducerBody)
_BEGIN: Final = msgspec.json.Decoder(BeginBody)
_COMMIT: Final = msgspec.json.Decoder(CommitBody)
_ABORT: Final = msgspec.json.Decoder(AbortBody)


class TransactionRoutes:
    def __init__(
        self,
        gateway: Gateway,
        transactions: Transactions,
        atomic: Atomic,
        ids: ProducerIds,
        items: TransactionItems,
        metrics: Metrics,
    ) -> None:
        self._gateway = gateway
        self._transactions = transactions
        self._atomic = atomic
        self._ids = ids
        self._items = items
        self._metrics = metrics

    async def init_producer(self, request: Request) -> Response:
        """Give a producer its id; with a transactional id, fence older instances of it."""
        Query(request)
        body = await read_json(request, self._gateway, _PRODUCER)
        caller = caller_of(request.scope)
        if body.transactional_id is None:
            caller.require_some_write()
            return _answer(request, ProducerAnswer(await self._ids.plain(), 0))
        caller.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        instance = await self._transactions.init(body.transactional_id)
        return _answer(request, ProducerAnswer(instance.producer_id, instance.epoch))

    async def begin(self, request: Request) -> Response:
        """Begin a transaction."""
        Query(request)
        body = await read_json(request, self._gateway, _BEGIN)
        caller = caller_of(request.scope)
        caller.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        instance = None
        if body.producer_id is not None and body.epoch is not None:
            instance = Instance(producer_id=body.producer_id, epoch=body.epoch)
        elif body.producer_id is not None or body.epoch is not None:
            raise InvalidRequest("give producer_id and epoch together, or neither")
        begun = await self._transactions.begin(body.transactional_id, body.timeout_ms, instance)
        assert begun.timeout_ms is not None, begun
        return _answer(
            request,
            BeginAnswer(
                transaction_id=str(begun.ref),
                producer_id=begun.ref.producer_id,
                epoch=begun.ref.epoch,
                timeout_ms=begun.timeout_ms,
            ),
        )

    async def commit(self, request: Request) -> Response:
        """Make all records of the transaction visible, with the offsets, or nothing of it."""
        Query(request)
        body = await read_json(request, self._gateway, _COMMIT)
        offsets = None if body.offsets is None else body.offsets.group_commit()
        _check_offsets(request, offsets)
        ended = await self._transactions.commit(_ref(request), offsets, body.staged)
        return _answer(request, _ended(ended))

    async def abort(self, request: Request) -> Response:
        """End the transaction; nothing of it becomes visible."""
        Query(request)
        await read_json(request, self._gateway, _ABORT)
        return _answer(request, _ended(await self._transactions.abort(_ref(request))))

    async def list_transactions(self, request: Request) -> Response:
        """List transactional ids, each with its open or its last transaction."""
        Query(request)
        found = await self._transactions.all()
        caller = caller_of(request.scope)
        visible = [
            _info(each, caller)
            for each in found
            if caller.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.ref.transactional_id
            )
        ]
        return _answer(request, TransactionList(visible))

    async def describe(self, request: Request) -> Response:
        """Return the state of a transaction."""
        Query(request)
        view = await self._transactions.describe(_ref(request))
        return _answer(request, _info(view, caller_of(request.scope)))

    async def atomic(self, request: Request) -> Response:
        """Produce to many partitions and commit group offsets, all or nothing, in one call."""
        Query(request)
        check_json(request.headers.get("content-type"))
        sender = _sender(request)
        settings = self._gateway.settings
        with self._gateway.admission.hold() as hold:
            body = await read_body(
                request,
                hold,
                self._gateway.heavy_work,
                request_bytes_max=settings.request_bytes_max,
                decompressed_bytes_max=settings.decompressed_bytes_max,
            )
            caller = caller_of(request.scope)
            await caller.quotas.admit_produce(caller, len(body))
            limits = RecordLimits(
                # The topic limits the size of a record.
                record_bytes_max=settings.decompressed_bytes_max,
                record_count_max=settings.request_records_max,
                request_bytes_max=settings.decompressed_bytes_max,
            )
            now_ms = self._gateway.world.now_ms()
            records, offsets = await self._gateway.heavy_work.convert(
                len(body), lambda: decode_atomic(body, now_ms=now_ms, limits=limits)
            )
            records, offsets = caller.inward(records), caller.inward(offsets)
            for each in records:
                caller.require(Operation.WRITE, ResourceType.TOPIC, each.topic)
            _check_offsets(request, offsets)
            size_bytes = sum(each.batch.nbytes for each in records)
            hold.grow_to(size_bytes)
            guard = await self._guard(request, sender, body, records)
            done = await self._atomic.write(records, size_bytes, offsets, guard)
        if not done.is_replayed:
            self._metrics.produced(sum(each.batch.num_rows for each in records), size_bytes)
        answer = AtomicAnswer(_results(done.results))
        if done.producer_id is not None and done.epoch is not None:
            answer.producer_id, answer.epoch = done.producer_id, done.epoch
        return _answer(request, answer, {REPLAYED: "true"} if done.is_replayed else None)

    async def _guard(
        self, request: Request, sender: SenderHeaders, body: bytes, records: list[TopicRecords]
    ) -> Guard:
        """Return the guard that makes the call idempotent, if the headers allow it."""
        metadata, world = self._gateway.metadata, self._gateway.world
        fingerprint = hashlib.sha256(body).digest()
        if sender.producer is not None:
            producer_id, epoch = sender.producer
            await self._ids.check_issued(producer_id)
            if is_transactional(producer_id):
                ref = Ref(await self._ids.owner(producer_id), producer_id, epoch)
                _check_owner(caller_of(request.scope), ref)
                return TransactionGuard(self._items, ref, fingerprint[:_DIGEST_BYTES])
            count = sum(each.batch.num_rows for each in records)
            if not count:
                raise InvalidRequest(
                    f"header {SEQUENCE} counts records, and there are none: use an Idempotency-Key,"
                    " or the producer id of a transactional id"
                )
            assert isinstance(sender.sequence, int), sender
            return SequenceGuard(metadata, world, sender.producer, sender.sequence, count)
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is not None:
            # Tenants choose their keys without knowing of each other.
            tenant = caller_of(request.scope).name_prefix
            # Keys are printable: the line break tells where the prefix ends.
            beginning = f"{tenant}\n".encode() if tenant else b""
            digest = hashlib.sha256(beginning + _checked_key(key)).hexdigest()
            return KeyGuard(metadata, world, digest, fingerprint)
        return Unguarded()


def _sender(request: Request) -> SenderHeaders:
    """Return the sender of an atomic call; raise `InvalidRequest` if its headers do not fit."""
    sender = parse_sender(request.headers)
    if sender.transaction_id is not None:
        raise InvalidRequest(
            f"header {TRANSACTION}: this call is a transaction by itself; leave it out"
        )
    if sender.producer is None:
        return sender
    if IDEMPOTENCY_KEY in request.headers:
        raise InvalidRequest(f"headers: give {ID} or Idempotency-Key, not both")
    if is_transactional(sender.producer[0]):
        if sender.sequence is not None:
            raise InvalidRequest(
                f"header {SEQUENCE}: producer {sender.producer[0]} is that of a transactional id,"
                f" whose epoch tells one call from the next; leave it out"
            )
    elif not isinstance(sender.sequence, int):
        raise InvalidRequest(
            f"headers: {ID} and {EPOCH} need {SEQUENCE} with one number, which counts the records"
            " of all atomic calls of the producer"
        )
    return sender


def _checked_key(key: str) -> bytes:
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isprintable():
        raise InvalidRequest(
            f"header Idempotency-Key: must be 1 to {KEY_CHARS_MAX} printable characters"
        )
    return key.encode()


def _ref(request: Request) -> Ref:
    return state.parse_ref(request.path_params["transaction"])


def _results(results: Results | None) -> list[PartitionResult] | msgspec.UnsetType:
    if results is None:
        return msgspec.UNSET
    return [
        PartitionResult(topic, partition, base_offset, count)
        for topic, rows in results.items()
        for partition, base_offset, count in rows
    ]


def _ended(ended: Ended) -> EndAnswer:
    return EndAnswer(
        transaction_id=str(ended.ref),
        state=str(ended.outcome),
        producer_id=ended.producer_id,
        epoch=ended.epoch,
        results=_results(ended.results),
    )


def _info(view: View, caller: Caller) -> TransactionInfo:
    """Return what the caller may know: as in Kafka, only topics that it may describe."""
    return TransactionInfo(
        transaction_id=str(view.ref),
        transactional_id=view.ref.transactional_id,
        state=view.state,
        producer_id=view.ref.producer_id,
        epoch=view.ref.epoch,
        started_ms=view.started_ms,
        timeout_ms=view.timeout_ms,
        partitions=[
            Partition(topic, partition)
            for topic, partition in view.partitions
            if caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


def _check_owner(caller: Caller, ref: Ref) -> None:
    """Raise unless the caller may write as this producer; it has named only the producer's id."""
    write, kind, name = Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ref.transactional_id
    decision = caller.decide(write, kind, name)
    if not decision.allowed:
        raise caller.refusal(write, kind, name, decision, f"of producer {ref.producer_id}")


def _check_offsets(request: Request, offsets: GroupCommit | None) -> None:
    """Raise unless the caller may commit offsets for this group and these topics."""
    if offsets is None:
        return
    caller = caller_of(request.scope)
    caller.require(Operation.READ, ResourceType.GROUP, offsets.group_id)
    for topic in {commit.topic for commit in offsets.commits}:
        caller.require(Operation.READ, ResourceType.TOPIC, topic)


def _answer(
    request: Request, body: msgspec.Struct, headers: dict[str, str] | None = None
) -> Response:
    named = caller_of(request.scope).outward(body)
    return Response(msgspec.json.encode(named), media_type=JSON, headers=headers)
