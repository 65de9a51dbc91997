"""What a producer sent, checked; what a reader gets, placed.

A batch is stored as it came and read by others for years, so `check` follows every length
before the batch is acknowledged: a batch with a right checksum and wrong lengths would be poison
for every reader of another door, and for compaction.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from storage.errors import BadBatch
from storage.formats.kafka import layout
from storage.formats.kafka.columns import names
from storage.formats.kafka.compression import (
    COMPRESSIONS,
    Bytes,
    Compression,
    TooMuch,
    pack,
    unpack,
)
from storage.formats.kafka.layout import HEADER_BYTES, BatchHeader, Malformed
from storage.formats.kafka.small import FEW, SmallRecord, records
from storage.formats.kafka.varints import Ints
from storage.formats.kafka.walk import Walked, walk

RECORDS_MAX: Final = 1_000_000
"""Of one batch. Following all lengths at once takes a hundred bytes of memory for each record, and
a bomb has millions of seven bytes in a few kilobytes."""
LIGHT_BYTES: Final = 1024 * 1024
LIGHT_RECORDS_MAX: Final = 10_000
NAMED_MAX: Final = 1_000
"""At most so many records of a batch are named as the reason why it is refused."""
NO_TIMESTAMP: Final = -1
"""Kafka's time of a record without one."""
_MS_MAX: Final = 2**63 - 1


class ProducerClaim(NamedTuple):
    """What the batch of an idempotent producer says of itself."""

    producer_id: int
    epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Whole batches of one partition, adjacent, as they came."""

    data: memoryview
    count: int
    min_ms: int
    max_ms: int
    codec: Compression
    """Of the first."""
    record_bytes: int
    """All records, unpacked, with the lengths between them."""
    claim: ProducerClaim | None
    """Of the only batch; None: its producer is not idempotent."""
    is_transactional: bool
    opened: "Opened | None" = None
    """Its records, for who looks at them before they are stored."""


class Opened(NamedTuple):
    """The records of one batch, unpacked, and where everything in them lies."""

    body: bytes
    walked: Walked


class _Facts(NamedTuple):
    min_delta: int
    max_delta: int
    keyless: Ints | list[int]
    """The places of the records without a key."""
    largest: int
    walked: Walked | None
    """None: there are few of them."""


def check(
    data: Bytes,
    *,
    record_bytes_max: int,
    needs_keys: bool,
    decompressed_bytes_max: int,
    keeps_open: bool = False,
) -> Batches:
    """Return the one batch that a producer sent for a partition, or raise `BadBatch`.

    Afterwards every length in it is right, and it can be stored as it is. `needs_keys`: the
    topic is compacted. `record_bytes_max` bounds key, value and headers of each record. With
    `keeps_open`, a batch of many records is returned `opened`, so that nobody walks it again.
    """
    claimed = claimed_by(data)
    header = _header(data)
    try:
        body = bytes(unpack(claimed.codec, memoryview(data)[HEADER_BYTES:], decompressed_bytes_max))
        facts = _facts(body, header.records)
    except TooMuch as error:
        raise BadBatch(str(error), "MESSAGE_TOO_LARGE") from error
    except Malformed as error:
        raise BadBatch(str(error), "INVALID_RECORD") from error
    if needs_keys and len(facts.keyless):
        text = "the topic is compacted: every record needs a key"
        raise BadBatch(text, "INVALID_RECORD", [int(row) for row in facts.keyless[:NAMED_MAX]])
    if facts.largest > record_bytes_max:
        raise BadBatch(
            f"a record has {facts.largest} bytes of key, value and headers; it may have"
            f" {record_bytes_max}",
            "MESSAGE_TOO_LARGE",
        )
    min_ms, max_ms = header.base_ms + facts.min_delta, header.base_ms + facts.max_delta
    if min_ms < NO_TIMESTAMP or max_ms > _MS_MAX:
        raise BadBatch(f"timestamps between {min_ms} and {max_ms} ms", "INVALID_TIMESTAMP")
    opened = Opened(body, facts.walked) if keeps_open and facts.walked is not None else None
    return replace(claimed, min_ms=min_ms, max_ms=max_ms, record_bytes=len(body), opened=opened)


def claimed_by(data: Bytes) -> Batches:
    """Return what the one batch says of itself, or raise `BadBatch` if that shows a fault.

    Its checksum is compared, its records are not unpacked. Only `check` knows whether they are as
    many, and between the times, that the header says; until then its `record_bytes` are those of
    the packed batch.
    """
    header = _check_frame(data)
    _check_attributes(header)
    claim = ProducerClaim(header.producer_id, header.producer_epoch, header.base_sequence)
    return Batches(
        data=memoryview(data),
        count=header.records,
        min_ms=header.base_ms,
        max_ms=header.max_ms,
        codec=COMPRESSIONS[header.attributes & layout.CODEC_BITS],
        record_bytes=len(data),
        claim=claim if header.producer_id >= 0 else None,
        is_transactional=bool(header.attributes & layout.TRANSACTIONAL),
    )


def is_light(data: Bytes) -> bool:
    """Whether `check` takes at most some milliseconds, if it unpacks at most `LIGHT_BYTES`."""
    return len(data) < HEADER_BYTES or _header(data).records <= LIGHT_RECORDS_MAX


def _header(data: Bytes) -> BatchHeader:
    return BatchHeader._make(layout.BATCH_HEADER.unpack_from(data))


def _check_frame(data: Bytes) -> BatchHeader:
    """Return the header of the only batch, which has its checksum."""
    if len(data) > layout.MAGIC_AT and data[layout.MAGIC_AT] < layout.MAGIC:
        raise BadBatch(
            f"magic {data[layout.MAGIC_AT]}: send batches of magic 2, which clients do since"
            " Kafka 0.11",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        )
    try:
        found = next(layout.headers(data), None)
    except Malformed as error:
        raise BadBatch(str(error), "CORRUPT_MESSAGE") from error
    if found is None:
        raise BadBatch("there is no batch", "INVALID_RECORD")
    if found.end < len(data):
        raise BadBatch("more than one batch for a partition", "INVALID_RECORD")
    if layout.crc_of(data) != found.header.crc:
        raise BadBatch("the checksum does not match", "CORRUPT_MESSAGE")
    return found.header


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & layout.CODEC_BITS >= len(COMPRESSIONS):
        raise BadBatch(
            f"compression type {attributes & layout.CODEC_BITS}", "UNSUPPORTED_COMPRESSION_TYPE"
        )
    if attributes & layout.LOG_APPEND_TIME:
        raise BadBatch("only the log sets the time of appending", "INVALID_TIMESTAMP")
    if header.records > RECORDS_MAX:
        raise BadBatch(
            f"the batch has {header.records} records; it may have {RECORDS_MAX}",
            "MESSAGE_TOO_LARGE",
        )
    wrong = {
        "control batches are the log's own": attributes & layout.CONTROL,
        "a producer knows no delete horizon": attributes & layout.DELETE_HORIZON,
        f"the base offset is {header.base_offset}, not 0": header.base_offset,
        "the batch has no records": header.records < 1,
        "the last offset is not that of the last record": header.last_delta != header.records - 1,
        "a batch of an idempotent producer has a sequence": (
            header.producer_id >= 0 and header.base_sequence < 0
        ),
        "a batch of a transaction names its producer": (
            header.producer_id < 0 and attributes & layout.TRANSACTIONAL
        ),
    }
    for text, is_wrong in wrong.items():
        if is_wrong:
            raise BadBatch(text, "INVALID_RECORD")


def _facts(body: bytes, count: int) -> _Facts:
    if count < FEW:
        return _facts_of_few(list(records(body, count)))
    walked = walk(body, count)
    if (walked.offset_delta != np.arange(count)).any():
        raise Malformed("the offsets of the records are not 0, 1, 2 ...")
    if walked.entries is not None and not body.isascii():
        names(pa.py_buffer(body), walked.entries)
    return _Facts(
        int(walked.time_delta.min()),
        int(walked.time_delta.max()),
        np.flatnonzero(walked.key_bytes < 0),
        int(walked.record_bytes().max()),
        walked,
    )


def _facts_of_few(few: list[SmallRecord]) -> _Facts:
    if any(record.offset_delta != index for index, record in enumerate(few)):
        raise Malformed("the offsets of the records are not 0, 1, 2 ...")
    deltas = [record.time_delta for record in few]
    return _Facts(
        min(deltas),
        max(deltas),
        [index for index, record in enumerate(few) if record.key is None],
        max(record.size_bytes for record in few),
        None,
    )


def placed(data: Bytes, base_offset: int, leader_epoch: int = 0) -> bytearray:
    """Return stored batches with their offsets, which follow each other from `base_offset`."""
    out = bytearray(data)
    for start, _, header in layout.headers(data):
        layout.place(out, start, base_offset, leader_epoch)
        base_offset += header.last_delta + 1
    return out


def from_offset(data: Bytes, base_offset: int, offset: int) -> memoryview:
    """Return the batches from the one that holds `offset`, the first of them at `base_offset`."""
    for start, _, header in layout.headers(data):
        base_offset += header.last_delta + 1
        if offset < base_offset:
            return memoryview(data)[start:]
    return memoryview(data)[len(data) :]


def stamped(data: Bytes, now_ms: int) -> bytearray:
    """Return the batches with `now_ms` as the time of all their records: LogAppendTime."""
    out = bytearray(data)
    for start, end, header in layout.headers(data):
        changed = header._replace(attributes=header.attributes | layout.LOG_APPEND_TIME)
        layout.seal(out, start, end, changed._replace(max_ms=now_ms))
    return out


def recompressed(data: Bytes, codec: Compression, *, decompressed_bytes_max: int) -> bytes:
    """Return the batches with their records compressed by `codec`."""
    out = []
    for start, end, header in layout.headers(data):
        had = COMPRESSIONS[header.attributes & layout.CODEC_BITS]
        body = pack(
            codec,
            unpack(had, memoryview(data)[start + HEADER_BYTES : end], decompressed_bytes_max),
        )
        attributes = header.attributes & ~layout.CODEC_BITS | COMPRESSIONS.index(codec)
        out.append(layout.sealed(header._replace(attributes=attributes), body))
    return b"".join(out)
