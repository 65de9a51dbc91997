"""Fit answers of records into the maximum size of a host that buffers answers.

The size of records as JSON is known only after encoding. So they are encoded, and again with fewer
records if the result is too large: rarely more than once more, since the first result shows the
ratio.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.log.gateway import FetchResult
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


def with_rest(body: Body, rest: bytes) -> Body:
    """Return a body of the same records, with `rest` as its last piece."""
    return replace(body, pieces=[*body.pieces[:-1], rest])


async def fitted(
    encode: Callable[[int], Awaitable[Body]],
    bytes_max: int,
    answer_bytes_max: int,
    result: FetchResult,
) -> Body:
    """Return what `encode` makes of `bytes_max` of records, or of fewer, so that it fits.

    Raises `RecordTooLarge` if not even one record fits. If `answer_bytes_max` is 0, anything fits.
    """
    found = await encode(bytes_max)
    while answer_bytes_max and found.body_bytes > answer_bytes_max:
        if found.record_count <= 1:
            raise too_large(result, found.body_bytes, answer_bytes_max)
        ratio = CAUTION * answer_bytes_max / found.body_bytes
        bytes_max = max(1, int(ratio * min(bytes_max, found.size_bytes)))
        found = await encode(bytes_max)
    return found


def too_large(result: FetchResult, size_bytes: int, answer_bytes_max: int) -> RecordTooLarge:
    """Return the error for a record that no answer can hold."""
    topic, partition = result.topic.name, result.partition
    offset = result.fetched.start_offset
    return RecordTooLarge(
        f"the record at or behind offset {offset} takes {size_bytes} bytes in this form, and"
        f" answers here end at {answer_bytes_max}; read it where it is stored: GET"
        f" /v1/topics/{topic}/partitions/{partition}/segments?offset={offset}&end={offset + 1}"
    )
