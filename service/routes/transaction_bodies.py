"""Bodies of the calls about transactions, decoded."""

from typing import Annotated, Final, TypeAlias

import msgspec
import pyarrow as pa

from service.http.bodies.json import Decoded, RawTopicRecord, TopicRecord, decoded_records
from service.http.bodies.json_errors import ATOMIC_FIELDS, explained, not_json
from service.http.bodies.json_shape import check_shape
from service.limits.record_limits import RecordLimits
from service.routes import groups as group_routes
from service.transactions.atomic import TopicRecords
from service.transactions.transactions import TIMEOUT_MS_DEFAULT, GroupCommit
from storage.errors import InvalidRequest
from storage.head.producers import EPOCH_MAX, PRODUCER_ID_MAX

_ProducerId: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=PRODUCER_ID_MAX)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]


class OffsetsBody(group_routes.CommitBody, kw_only=True):
    group: str


class ProducerBody(msgspec.Struct, forbid_unknown_fields=True):
    transactional_id: str | None = None


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    transactional_id: str
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    producer_id: _ProducerId | None = None
    epoch: _Epoch | None = None


class WithOffsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: OffsetsBody | None = None


class CommitBody(WithOffsets, forbid_unknown_fields=True):
    staged: list[str] | None = None
    """Only these requests, in this order; None: all, in order of arrival."""


class AbortBody(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _AtomicBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[TopicRecord] = []
    offsets: OffsetsBody | None = None


class _RawAtomicBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[RawTopicRecord] = []
    offsets: OffsetsBody | None = None


_ATOMIC: Final = msgspec.json.Decoder(_AtomicBody)
_RAW_ATOMIC: Final = msgspec.json.Decoder(_RawAtomicBody)
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def group_commit(body: OffsetsBody | None) -> GroupCommit | None:
    """Return the offsets to commit, or raise `InvalidRequest`."""
    if body is None:
        return None
    commits, committer = group_routes.offsets_of(body, "offsets: ")
    return GroupCommit(group_id=body.group, commits=commits, committer=committer)


def decode_atomic(
    body: bytes, *, now_ms: int, limits: RecordLimits
) -> tuple[list[TopicRecords], GroupCommit | None]:
    """Return the records of each topic, and the offsets, or raise `InvalidRequest`.

    The topic limits the size of a record; that is not checked here.
    """
    check_shape(body, limits)
    decoded = _decode(body)
    offsets = group_commit(decoded.offsets)
    if not decoded.records:
        if offsets is None:
            raise InvalidRequest(f"there are neither records nor offsets; {ATOMIC_FIELDS.body}")
        return [], offsets
    records = decoded_records(decoded.records, len(body), now_ms, limits)
    rows: dict[str, list[int]] = {}
    for row, topic in enumerate([record.topic for record in decoded.records]):
        rows.setdefault(topic, []).append(row)
    return [_of_topic(topic, of_topic, records) for topic, of_topic in rows.items()], offsets


def _decode(body: bytes) -> _AtomicBody | _RawAtomicBody:
    try:
        return _ATOMIC.decode(body)
    except _REFUSALS:
        pass
    try:
        body.decode()  # The decoder does not check raw values for UTF-8.
        return _RAW_ATOMIC.decode(body)
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
