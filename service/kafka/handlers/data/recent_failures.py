"""Which batches of idempotent producers failed here lately.

A head that knows nothing of a producer refuses its batches, unless they are numbered from 0. There
are two reasons, and clients need to hear which: with UNKNOWN_PRODUCER_ID they begin anew, with
OUT_OF_ORDER_SEQUENCE_NUMBER they send again what is missing before, or give up for ever.

- The batch before this one failed a moment ago. The producer knows, and will send it again.
- Else the producer was forgotten, because it wrote nothing for a long time.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from storage.formats.kafka.batches import ProducerClaim
from storage.formats.partitions import PartitionNumber
from storage.head.producers import SEQUENCES

KEPT_S: Final = 300.0
"""Producers give up a batch after two to five minutes."""

KEPT_MAX: Final = 10_000
"""Failures that are remembered; the oldest is forgotten first."""

_Key: TypeAlias = tuple[bytes, int, int, int, int]


class RecentFailures:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._failed: OrderedDict[_Key, float] = OrderedDict()

    def note(
        self, topic_id: bytes, partition: PartitionNumber, claim: ProducerClaim, count: int
    ) -> None:
        """Remember that this batch was not written."""
        end = (claim.base_sequence + count) % SEQUENCES
        key = topic_id, partition, claim.producer_id, claim.epoch, end
        self._failed[key] = self._monotonic_s()
        self._failed.move_to_end(key)
        if len(self._failed) > KEPT_MAX:
            self._failed.popitem(last=False)

    def precede(self, topic_id: bytes, partition: PartitionNumber, claim: ProducerClaim) -> bool:
        """Whether the batch that ends where this one begins failed lately."""
        key = topic_id, partition, claim.producer_id, claim.epoch, claim.base_sequence
        failed_s = self._failed.get(key)
        return failed_s is not None and self._monotonic_s() - failed_s <= KEPT_S
