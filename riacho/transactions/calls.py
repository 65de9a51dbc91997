"""The gateway calls of a transactional producer, as values.

    initialise ──▶ Identity(producer id, epoch)      older instances are shut out
    atomic(identity, records, offsets) ──▶ End       a whole transaction in one call
    begin(identity) ──▶ transaction id · stage … · commit or abort ──▶ End

Nothing is retried here. Every call may be repeated after a lost reply: the gateway remembers the
end of a transaction under its epoch, and answers a repeated call like the first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from riacho.delivery.batches import Batch
from riacho.delivery.numbering import number_headers
from riacho.errors import new_error
from riacho.http import wire
from riacho.http.gateway import JSON, Gateway, Reply, topic_path
from riacho.records import TopicPartition
from storage.errors import OutcomeUnknown


@dataclass(frozen=True, slots=True)
class Identity:
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class End:
    """How a transaction ended: the producer's identity from now on, and its records' offsets."""

    identity: Identity
    offsets: Mapping[TopicPartition, Sequence[int]]


class TransactionClient:
    def __init__(
        self,
        gateway: Gateway,
        transactional_id: str,
        *,
        timeout_ms: int,
        compression: wire.Compression,
    ) -> None:
        self._gateway = gateway
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._compression = compression

    async def initialise(self) -> Identity:
        """Become the only instance: fences all others with this transactional id."""
        body = {"transactional_id": self._transactional_id}
        return _identity(await self._gateway.request("POST", "/v1/producers", json=body))

    async def begin(self, identity: Identity) -> str:
        """Open the transaction of this epoch and return its id."""
        body = {
            "transactional_id": self._transactional_id,
            "timeout_ms": self._timeout_ms,
            "producer_id": identity.producer_id,
            "epoch": identity.epoch,
        }
        reply = await self._gateway.request("POST", "/v1/transactions", json=body)
        try:
            return str(reply.json()["transaction_id"])
        except (KeyError, TypeError) as error:
            raise _unreadable(error) from error

    async def stage(
        self,
        transaction_id: str,
        identity: Identity,
        topic: str,
        batches: Sequence[Batch],
    ) -> None:
        """Write numbered batches, one per partition, which stay invisible until the commit."""
        drafts = [draft for batch in batches for draft in batch.drafts]
        columns = wire.Columns(
            [draft.timestamp for draft in drafts],
            [draft.key for draft in drafts],
            [draft.value for draft in drafts],
            [draft.headers for draft in drafts],
            [batch.partition.partition for batch in batches for _ in batch.drafts],
        )
        body, headers = wire.encode_records(columns, self._compression)
        sequence = ",".join(f"{batch.partition.partition}={batch.sequence}" for batch in batches)
        headers |= number_headers(identity.producer_id, identity.epoch, sequence)
        headers["riacho-transaction"] = transaction_id
        path = topic_path(topic, "records")
        await self._gateway.request("POST", path, content=body, headers=headers)

    async def commit(self, transaction_id: str, offsets: Mapping[str, Any] | None) -> End:
        body = {} if offsets is None else {"offsets": offsets}
        path = transaction_path(transaction_id, "commit")
        return _end(await self._gateway.request("POST", path, json=body))

    async def abort(self, transaction_id: str) -> End:
        path = transaction_path(transaction_id, "abort")
        return _end(await self._gateway.request("POST", path, json={}))

    async def atomic(self, identity: Identity, body: bytes) -> End:
        """Apply all of `atomic_body`, or nothing, as the one transaction of this epoch."""
        headers = {
            "content-type": JSON,
            "riacho-producer-id": str(identity.producer_id),
            "riacho-producer-epoch": str(identity.epoch),
        }
        return _end(
            await self._gateway.request("POST", "/v1/atomic", content=body, headers=headers)
        )


def transaction_path(transaction_id: str, *rest: str) -> str:
    """Return the path of a transaction or of something below it."""
    return "/".join(
        ["/v1/transactions", *(quote(part, safe="") for part in (transaction_id, *rest))]
    )


def atomic_body(batches: Iterable[Batch], offsets: Mapping[str, Any] | None) -> bytes:
    """Return the request that writes all `batches` and commits `offsets`."""
    import msgspec

    records = []
    for batch in batches:
        topic, partition = batch.partition
        for draft in batch.drafts:
            record = wire.record_document(draft.timestamp, draft.key, draft.value, draft.headers)
            record["topic"], record["partition"] = topic, partition
            records.append(record)
    document: dict[str, Any] = {"records": records}
    if offsets is not None:
        document["offsets"] = offsets
    return msgspec.json.encode(document)


def _identity(reply: Reply) -> Identity:
    document = reply.json()
    try:
        return Identity(int(document["producer_id"]), int(document["epoch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from error


def _end(reply: Reply) -> End:
    offsets: dict[TopicPartition, list[int]] = {}
    try:
        for one in reply.json().get("results") or ():
            place = TopicPartition(one["topic"], one["partition"])
            base, count = one["base_offset"], one["count"]
            offsets.setdefault(place, []).extend(range(base, base + count))
    except (KeyError, TypeError) as error:
        raise _unreadable(error) from error
    return End(_identity(reply), offsets)


def _unreadable(error: Exception) -> Exception:
    detail = f"the reply about the transaction cannot be read: {error!r}"
    return new_error(OutcomeUnknown, detail, retryable=False)
