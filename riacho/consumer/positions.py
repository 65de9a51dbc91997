"""Methods of a consumer for positions: seek, pause, and look up offsets."""

import asyncio
from collections.abc import Sequence

from riacho.consumer.assignment import Begin, Start
from riacho.consumer.fetching import Fetching
from riacho.records import TopicPartition, topic_partitions


class Positions:
    _fetching: Fetching

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions. Those of a subscription appear only after polls."""
        return self._fetching.assignment.partitions()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Make `offset` the next record to be returned for the partition."""
        self._fetching.assignment.seek(TopicPartition(topic, partition), offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Seek to the oldest record of the partitions; of all assigned ones if none is named."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Seek past the newest record that exists when the consumer next polls."""
        self._seek_to("latest", partitions)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Seek to the first record stamped `timestamp_ms` or later; to the end if none is."""
        self._seek_to(timestamp_ms, partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`; positions are kept."""
        for partition in topic_partitions(partitions):
            self._fetching.assignment.pause(partition, is_paused=True)

    def resume(self, *partitions: tuple[str, int]) -> None:
        for partition in topic_partitions(partitions):
            self._fetching.assignment.pause(partition, is_paused=False)

    def paused(self) -> list[TopicPartition]:
        return self._fetching.assignment.paused()

    def _seek_to(self, start: Begin, partitions: Sequence[tuple[str, int]]) -> None:
        for partition in topic_partitions(partitions) or self.assignment():
            self._fetching.assignment.seek_to(partition, start)

    async def _offsets(
        self, at: Start, partitions: Sequence[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        asked = topic_partitions(partitions) or self.assignment()
        offsets = await asyncio.gather(*(self._fetching.log.offset_at(p, at) for p in asked))
        return dict(zip(asked, offsets, strict=True))
