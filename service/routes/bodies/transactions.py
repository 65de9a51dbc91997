"""Bodies of the calls about producers and transactions: what is sent, and what is answered."""

from typing import Annotated, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, UnsetType

from service.http.bodies.fields import Epoch, GroupId, Partition, ProducerId
from service.http.bodies.json import AtomicRecord, Decoded, TopicRecord, decoded_records
from service.http.bodies.json_errors import ATOMIC_FIELDS, explained, not_json
from service.http.bodies.json_shape import check_shape
from service.process.limits.record_limits import RecordLimits
from service.routes.bodies.groups import OffsetsBody
from service.transactions.atomic import TopicRecords
from service.transactions.commit import GroupCommit
from service.transactions.transactions import TIMEOUT_MS_DEFAULT
from storage.errors import InvalidRequest


class GroupOffsets(OffsetsBody, kw_only=True):
    group: GroupId

    def group_commit(self) -> GroupCommit:
        """Return the offsets to commit, or raise `InvalidRequest`."""
        commits, committer = self.commits("offsets: ")
        return GroupCommit(group_id=self.group, commits=commits, committer=committer)


class ProducerBody(msgspec.Struct, forbid_unknown_fields=True):
    transactional_id: str | None = None


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    transactional_id: str
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    producer_id: ProducerId | None = None
    epoch: Epoch | None = None


class CommitBody(msgspec.Struct, forbid_unknown_fields=True):
    offsets: GroupOffsets | None = None
    staged: Annotated[
        list[str] | None,
        Meta(description="only these requests, in this order; null: all, in order of arrival"),
    ] = None


class AbortBody(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _PlainAtomicBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[TopicRecord] = []
    offsets: GroupOffsets | None = None


class AtomicBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[AtomicRecord] = []
    offsets: GroupOffsets | None = None


class ProducerAnswer(msgspec.Struct):
    producer_id: ProducerId
    epoch: Epoch


class BeginAnswer(msgspec.Struct):
    transaction_id: str
    producer_id: ProducerId
    epoch: Epoch
    timeout_ms: int


class PartitionResult(Partition):
    base_offset: int
    count: int


class EndAnswer(msgspec.Struct):
    transaction_id: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["committed", "aborted"]})]
    producer_id: ProducerId
    epoch: Epoch
    results: Annotated[
        list[PartitionResult] | UnsetType,
        Meta(description="where the records are; left out if a later commit took its place"),
    ] = UNSET


class AtomicAnswer(msgspec.Struct):
    results: list[PartitionResult] | UnsetType = UNSET
    producer_id: ProducerId | UnsetType = UNSET
    epoch: Epoch | UnsetType = UNSET


class TransactionInfo(msgspec.Struct):
    transaction_id: str
    transactional_id: str
    state: Annotated[
        str, Meta(extra_json_schema={"enum": ["empty", "ongoing", "committed", "aborted"]})
    ]
    producer_id: ProducerId
    epoch: Epoch
    started_ms: int | None
    timeout_ms: int | None
    partitions: list[Partition]


class TransactionList(msgspec.Struct):
    transactions: list[TransactionInfo]


_PLAIN_ATOMIC: Final = msgspec.json.Decoder(_PlainAtomicBody)
_ATOMIC: Final = msgspec.json.Decoder(AtomicBody)
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_atomic(
    body: bytes, *, now_ms: int, limits: RecordLimits
) -> tuple[list[TopicRecords], GroupCommit | None]:
    """Return the records of each topic, and the offsets, or raise `InvalidRequest`.

    The topic limits the size of a record; that is not checked here.
    """
    check_shape(body, limits)
    decoded = _decode(body)
    offsets = None if decoded.offsets is None else decoded.offsets.group_commit()
    if not decoded.records:
        if offsets is None:
            raise InvalidRequest(f"there are neither records nor offsets; {ATOMIC_FIELDS.body}")
        return [], offsets
    records = decoded_records(decoded.records, len(body), now_ms, limits)
    rows: dict[str, list[int]] = {}
    for row, topic in enumerate([record.topic for record in decoded.records]):
        rows.setdefault(topic, []).append(row)
    return [_of_topic(topic, of_topic, records) for topic, of_topic in rows.items()], offsets


def _decode(body: bytes) -> _PlainAtomicBody | AtomicBody:
    try:
        return _PLAIN_ATOMIC.decode(body)
    except _REFUSALS:
        pass
    try:
        body.decode()  # The decoder does not check raw values for UTF-8.
        return _ATOMIC.decode(body)
    except msgspec.ValidationError as error:
        raise explained(error, fields=ATOMIC_FIELDS) from error
    except _REFUSALS as error:
        raise not_json(body, error, fields=ATOMIC_FIELDS) from error


def _of_topic(topic: str, rows: list[int], records: Decoded) -> TopicRecords:
    batch, partitions = records
    if len(rows) < batch.num_rows:
        batch = batch.take(pa.array(rows, pa.int64()))
    wanted = None if partitions is None else [partitions[row] for row in rows]
    if wanted is not None and wanted.count(None) == len(wanted):
        wanted = None
    return TopicRecords(topic=topic, batch=batch, wanted=wanted, rows=rows)
