"""Headers to claims: which producer sends a request, and the sequence numbers of its records.

Riacho-Producer-Id: 4012            both of these, or none
Riacho-Producer-Epoch: 0
Riacho-Sequence: 17                 the number of the first record, if all go to one partition
Riacho-Sequence: 0=17,2=4           or one for each partition
Riacho-Transaction: copier.4013.6   stage the records in this transaction
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from service.log.lane_buffers import NO_CLAIMS, Claims
from service.process.limits.record_limits import PARTITION_MAX
from storage.errors import InvalidRequest
from storage.formats.partitions import PartitionNumber
from storage.head.producers import EPOCH_MAX, PRODUCER_ID_MAX, SEQUENCES, Claim
from storage.lanes.building import Records, count_of
from storage.stores.metadata import Check
from storage.topics.topics import Topic

ID: Final = "riacho-producer-id"
EPOCH: Final = "riacho-producer-epoch"
SEQUENCE: Final = "riacho-sequence"
TRANSACTION: Final = "riacho-transaction"

SEQUENCES_MAX: Final = 1000
"""Maximum number of partitions in one header."""

Sequence: TypeAlias = int | Mapping[PartitionNumber, int]
"""The number of the first record: of the only partition, or of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHeaders:
    """What the headers of a request say about its sender."""

    producer: tuple[int, int] | None = None
    """Id and epoch."""
    sequence: Sequence | None = None
    transaction_id: str | None = None


NO_SENDER: Final = SenderHeaders()


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """An idempotent producer and the numbers of its records."""

    producer_id: int
    epoch: int
    sequence: Sequence
    fence: Check | None = None
    """What must hold at the commit: the producer has not been fenced."""


def parse_sender(headers: Mapping[str, str]) -> SenderHeaders:
    """Return what the headers say, or raise `InvalidRequest` if they contradict each other."""
    if not any(name in headers for name in (ID, EPOCH, SEQUENCE, TRANSACTION)):
        return NO_SENDER
    if (ID in headers) != (EPOCH in headers):
        raise InvalidRequest(f"headers: {ID} and {EPOCH} belong together; send both or none")
    sender = SenderHeaders(
        producer=(
            (_number(headers, ID, 1, PRODUCER_ID_MAX), _number(headers, EPOCH, 0, EPOCH_MAX))
            if ID in headers
            else None
        ),
        sequence=_sequence(headers[SEQUENCE]) if SEQUENCE in headers else None,
        transaction_id=headers.get(TRANSACTION),
    )
    if sender.sequence is not None and not sender.producer and not sender.transaction_id:
        raise InvalidRequest(
            f"headers: {SEQUENCE} needs {ID} and {EPOCH}, which POST /v1/producers gives"
        )
    return sender


def _number(headers: Mapping[str, str], name: str, low: int, high: int) -> int:
    return _parse(name, headers[name].strip(), low, high)


def _parse(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or not low <= int(text) <= high:
        raise InvalidRequest(f"header {name}: must be a number from {low} to {high}, not {text!r}")
    return int(text)


def _sequence(text: str) -> Sequence:
    if "=" not in text:
        return _parse(SEQUENCE, text.strip(), 0, SEQUENCES - 1)
    items = text.split(",")
    if len(items) > SEQUENCES_MAX:
        raise InvalidRequest(f"header {SEQUENCE}: {len(items)} partitions, at most {SEQUENCES_MAX}")
    found: dict[PartitionNumber, int] = {}
    for item in items:
        partition, _, number = (part.strip() for part in item.partition("="))
        key = PartitionNumber(_parse(SEQUENCE, partition, 0, PARTITION_MAX))
        if key in found:
            raise InvalidRequest(f"header {SEQUENCE}: partition {key} is given twice")
        found[key] = _parse(SEQUENCE, number, 0, SEQUENCES - 1)
    return found


def sequences_of(
    parts: Collection[PartitionNumber], sequence: Sequence
) -> dict[PartitionNumber, int]:
    """Return the number of the first record of each partition, or raise `InvalidRequest`."""
    if isinstance(sequence, int):
        if len(parts) > 1:
            places = ", ".join(str(partition) for partition in sorted(parts)[:10])
            example = ",".join(f"{partition}=0" for partition in sorted(parts)[:2])
            raise InvalidRequest(
                f"header {SEQUENCE}: one number, but the records go to partitions {places}: send"
                f" them one by one, or a number for each ({example},…), or use POST /v1/atomic"
            )
        return dict.fromkeys(parts, sequence)
    missing = [partition for partition in parts if partition not in sequence]
    if missing:
        raise InvalidRequest(
            f"header {SEQUENCE}: there is no number for partition {missing[0]}, to which some"
            " records go"
        )
    return {partition: sequence[partition] for partition in parts}


def claims_of(
    topic: Topic, parts: Mapping[PartitionNumber, Records], numbered: Numbered | None
) -> Claims:
    """Return the claim of each partition's records; none if they are not numbered."""
    if numbered is None:
        return NO_CLAIMS
    claims: dict[PartitionNumber, Claim] = {}
    for partition, sequence in sequences_of(parts, numbered.sequence).items():
        _, local = topic.lane_of(partition)
        claims[partition] = Claim(
            local, numbered.producer_id, numbered.epoch, sequence, count_of(parts[partition])
        )
    return Claims(by_partition=claims, fence=numbered.fence)
