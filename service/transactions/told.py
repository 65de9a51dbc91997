"""What a client of Kafka's protocol knows of its transactional id, and its transitions. Pure.

There are two generations of these clients. Newer ones hear the next epoch with the answer to each
EndTxn, so they name transactions as everybody else does (KIP-890). Older ones name the epoch that
they were given at first, with every request and in every transaction, until they ask for another.
So the item keeps the pair of producer id and epoch that the client names, apart from its own:

    given       a new instance: the client is told the item's own pair
    ended       the client ended its transaction. A newer one is told the next pair; an older one
                keeps its pair, and the numbers of its records run on
    overtaken   the transaction ended otherwise: it timed out, or someone else ended it. The pair
                is not valid any more, or an older client would go on with half a transaction
"""

from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from storage.formats.partitions import PartitionNumber

NUMBERED_MAX: Final = 1_000
"""Maximum number of partitions whose next number is kept from one transaction to the next."""

Pair: TypeAlias = tuple[int, int]
"""Producer id and epoch."""

Following: TypeAlias = dict[str, dict[PartitionNumber, int]]
"""By topic and partition, the number of the record that comes next."""


class Told(msgspec.Struct, array_like=True, frozen=True):
    pair: Pair
    """What the client names."""
    timeout_ms: int
    former: Pair | None = None
    """The pair before this one, if the client may not know this one."""
    ended: tuple[Pair, bool] | None = None
    """The last transaction that it ended, by the pair it named then; and whether it committed."""
    following: Following = {}
    """Numbers that run on from the last transaction, of an older client."""
    is_trimmed: bool = False
    """Whether the numbers of some partitions are not kept any more."""


def given(pair: Pair, timeout_ms: int, former: Pair | None) -> Told:
    return Told(pair, timeout_ms, former)


def ended(told: Told, pair: Pair, *, is_commit: bool) -> Told:
    """Return what a newer client knows after the answer that tells it `pair`."""
    return Told(pair, told.timeout_ms, None, (told.pair, is_commit))


def ended_silently(told: Told, following: Following, *, is_commit: bool) -> Told:
    """Return what an older client knows after the end, in which it numbered records thus far."""
    numbers = {topic: dict(of) for topic, of in told.following.items()}
    for topic, of in following.items():
        # What was written to last comes last.
        numbers[topic] = {**numbers.pop(topic, {}), **of}
    kept = _trimmed(numbers)
    return replace(
        told,
        former=None,
        ended=(told.pair, is_commit),
        following=kept,
        is_trimmed=told.is_trimmed or _size(kept) < _size(numbers),
    )


def overtaken(told: Told, pair: Pair) -> Told:
    """Return what the client knows when its transaction was ended by someone else."""
    return Told(pair, told.timeout_ms, told.pair)


def expected(
    told: Told | None, opened: Following, topic: str, partition: PartitionNumber
) -> int | None:
    """Return the number that comes next; None: it is not kept, and any will do, as in Kafka.

    `opened` are those of the open transaction.
    """
    number = opened.get(topic, {}).get(partition)
    if number is None and told is not None:
        number = told.following.get(topic, {}).get(partition)
        if number is None and told.is_trimmed:
            return None
    return number or 0


def _trimmed(numbers: Following) -> Following:
    """Return the numbers of the partitions that were written to last."""
    left = NUMBERED_MAX
    kept: Following = {}
    for topic, of in reversed(numbers.items()):
        if left:
            kept[topic] = dict(list(of.items())[-left:])
            left -= len(kept[topic])
    return dict(reversed(kept.items()))


def _size(numbers: Following) -> int:
    return sum(map(len, numbers.values()))
