"""Opens ranges of encrypted topics, with data keys that the gateway unwraps for readers.

A task asks for each key once. The key is in the memory of the executor until the task ends; it is
in no plan and on no disk.
"""

from collections.abc import Callable, Sequence

import msgspec
from crc32c import crc32c

from riacho.records import TopicPartition
from riacho.spark.read.ranges import StoredRange
from storage.crypto.envelope import DataKey
from storage.errors import Corrupt
from storage.formats.compacted import Unseal
from storage.formats.partitions import PartitionNumber
from storage.formats.slices import SCHEMA_MESSAGE


class DataKeys:
    """The data keys that a task has asked for."""

    def __init__(self, ask: Callable[[str, int], DataKey]) -> None:
        self._ask = ask
        self._known: dict[tuple[str, int], DataKey] = {}

    def named(self, topic: str, number: int) -> DataKey:
        """Return a data key of a topic.

        Raises `EncryptionKeyUnavailable` if it was destroyed, and an `Unauthorized` error.
        """
        name = topic, number
        if name not in self._known:
            self._known[name] = self._ask(topic, number)
        return self._known[name]

    def unseal(self, place: TopicPartition, number: int) -> Unseal:
        """Return what opens row groups of a partition, given their start offset."""
        key = self.named(place.topic, number)
        partition = PartitionNumber(place.partition)
        return lambda data, start_offset: key.open(data, partition, start_offset)

    def opened(
        self, place: TopicPartition, run: Sequence[StoredRange], data: memoryview
    ) -> tuple[list[StoredRange], bytes]:
        """Return adjacent slices as they were before they were sealed, and where each is now.

        The bytes begin with `SCHEMA_MESSAGE`. Raises `Corrupt` if a slice is damaged.
        """
        partition = PartitionNumber(place.partition)
        pieces, found = [SCHEMA_MESSAGE], []
        position = 0
        for each in run:
            sealed = data[each.start - run[0].start : each.end - run[0].start]
            if crc32c(sealed) != each.crc32c:
                raise Corrupt(f"the slice of offset {each.base_offset} is damaged")
            piece = self.named(place.topic, each.data_key).open(sealed, partition)
            end = position + len(piece)
            found.append(
                msgspec.structs.replace(each, start=position, end=end, crc32c=crc32c(piece))
            )
            pieces.append(piece)
            position = end
        return found, b"".join(pieces)
