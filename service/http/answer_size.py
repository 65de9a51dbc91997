"""Fit answers into the maximum size of a host that buffers answers (`answer_bytes_max`).

This is the only module that reads the setting: routes ask an `AnswerSize`.

The size of records as JSON is known only after encoding. So they are encoded, and again with fewer
records if the result is too large: rarely more than once more, since the first result shows the
ratio.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from service.log.gateway import FetchResult
from service.settings import Settings
from storage.errors import RecordTooLarge
from storage.reading.fetched import Batches, Data

CAUTION: Final = 0.9
"""Records differ: the next attempt takes somewhat less than the last ratio suggests."""


@dataclass(frozen=True, slots=True)
class Body:
    pieces: Sequence[Data]
    """Concatenated, they are the body. Pieces in stored form belong to a cache."""
    next_offset: int
    record_count: int
    size_bytes: int
    """The size of its records in memory."""
    has_schemas: bool = False
    """It is empty, because what it would show depends on the schemas that its reader may use."""

    @property
    def body_bytes(self) -> int:
        return sum(map(len, self.pieces))


def body_of(result: FetchResult, batches: Batches, pieces: Sequence[Data]) -> Body:
    return Body(
        pieces,
        result.fetched.end_of(batches),
        sum(batch.num_rows for _, batch in batches),
        sum(batch.nbytes for _, batch in batches),
    )


NEEDS_SCHEMAS: Final = Body((), 0, 0, 0, has_schemas=True)


def with_rest(body: Body, rest: bytes) -> Body:
    """Return a body of the same records, with `rest` as its last piece."""
    return replace(body, pieces=[*body.pieces[:-1], rest])


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """The maximum size of an answer: a host that buffers answers has one."""

    bytes_max: int = 0
    """0: any size, as answers are sent while they are made."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the maximum of the host that `settings` describe."""
        return cls(settings.answer_bytes_max)

    @property
    def is_limited(self) -> bool:
        return self.bytes_max > 0

    def holds(self, size_bytes: int) -> bool:
        return not self.is_limited or size_bytes <= self.bytes_max

    def without(self, size_bytes: int) -> Self:
        """Return what remains beside `size_bytes` of the answer; if nothing does, one byte."""
        if not self.is_limited:
            return self
        return replace(self, bytes_max=max(1, self.bytes_max - size_bytes))

    async def fitted(
        self, encode: Callable[[int], Awaitable[Body]], bytes_max: int, result: FetchResult
    ) -> Body:
        """Return what `encode` makes of `bytes_max` of records, or of fewer, so that it fits.

        Raises `RecordTooLarge` if not even one record fits.
        """
        found = await encode(bytes_max)
        while not self.holds(found.body_bytes):
            if found.record_count <= 1:
                raise self.too_large(result, found.body_bytes)
            ratio = CAUTION * self.bytes_max / found.body_bytes
            bytes_max = max(1, int(ratio * min(bytes_max, found.size_bytes)))
            found = await encode(bytes_max)
        return found

    def too_large(self, result: FetchResult, size_bytes: int) -> RecordTooLarge:
        """Return the error for a record that no answer can hold."""
        topic, partition = result.topic.name, result.partition
        offset = result.fetched.start_offset
        return RecordTooLarge(
            f"the record at or behind offset {offset} takes {size_bytes} bytes in this form, and"
            f" answers here end at {self.bytes_max}; read it where it is stored: GET"
            f" /v1/topics/{topic}/partitions/{partition}/segments?offset={offset}&end={offset + 1}"
        )
