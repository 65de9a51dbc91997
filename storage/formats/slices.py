"""Slices: the records of one partition that were written together, as stored bytes.

A slice is one Arrow IPC record-batch message with `RECORD_SCHEMA`, its body compressed by
LZ4, ZSTD or not at all. The schema message is left out, since it is the same for all; put
it in front (`SCHEMA_MESSAGE`), an end-of-stream mark behind (`END_OF_STREAM`), and any
number of slices in between are an Arrow stream that any Arrow library reads. So a client
that speaks Arrow gets the stored bytes as they are.

A slice has no checksum of its own: the index entry or segment footer that refers to it holds
its CRC32C, which the reader passes to `decode`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Thread
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from storage.errors import Corrupt
from storage.formats.records import RECORD_SCHEMA

Codec = Literal["lz4", "zstd", "none"]

SLICE_BYTES: Final = 256 * 1024
"""Approximate size of a slice before compression: a random read decodes little, and the costs
of each slice (index entry, Arrow metadata) are negligible."""

SCHEMA_MESSAGE: Final = RECORD_SCHEMA.serialize().to_pybytes()
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
CONTINUATION: Final = b"\xff\xff\xff\xff"
"""Every message of a stream begins with this."""
ALIGNMENT: Final = 8
"""The size of every message is a multiple of this, so the next one begins aligned."""

TOGETHER_MIN: Final = 4
"""Minimum number of slices, about a megabyte, to start a second thread for: starting it takes
0.1 ms, compressing a slice a millisecond."""

_FEW: Final = 64
"""Up to this many numbers, Python is faster than looking up Arrow's function for them."""

_OPTIONS: Final = {
    codec: pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec, use_threads=False)
    for codec in ("lz4", "zstd", "none")
}
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """Stored bytes, and what an index entry says of them."""

    data: memoryview
    count: int
    min_ms: int
    max_ms: int
    crc: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Records that the client encoded as a slice: the bytes can be stored as they are."""

    data: memoryview
    codec: Codec
    batch: pa.RecordBatch

    def stored(self) -> Slice:
        """Return the slice that these bytes are."""
        return Slice(
            self.data, self.batch.num_rows, *_span(self.batch.column(0)), crc32c(self.data)
        )


def cut(batch: pa.RecordBatch, size_bytes: int) -> Iterable[pa.RecordBatch]:
    """Yield `batch`, which has about `size_bytes`, in pieces of about `SLICE_BYTES`.

    Nothing is copied. The caller gives the size, because asking Arrow takes longer than the rest.
    """
    rows = max(1, batch.num_rows * SLICE_BYTES // max(1, size_bytes))
    if rows >= batch.num_rows:
        yield batch
        return
    # Equal pieces, rather than full ones and a tiny last one.
    pieces = -(-batch.num_rows // rows)
    for piece in range(pieces):
        start = batch.num_rows * piece // pieces
        end = batch.num_rows * (piece + 1) // pieces
        yield batch.slice(start, end - start)


def encode(batches: Iterable[pa.RecordBatch], codec: Codec) -> list[Slice]:
    """Return one slice for each of `batches`.

    `TOGETHER_MIN` or more are compressed by two threads, which halves the caller's wait on a
    machine with two processors.
    """
    batches = [*batches]
    if len(batches) < TOGETHER_MIN or codec == "none":
        return _encode(batches, codec)
    middle = len(batches) // 2
    second: list[Slice | BaseException] = []

    def encode_second() -> None:
        try:
            second.extend(_encode(batches[middle:], codec))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it.
            second.append(error)

    helping = Thread(target=encode_second, name="slices", daemon=True)
    helping.start()
    first = _encode(batches[:middle], codec)
    helping.join()
    for each in second:
        if isinstance(each, BaseException):
            raise each
        first.append(each)
    return first


def _encode(batches: Iterable[pa.RecordBatch], codec: Codec) -> list[Slice]:
    sink = pa.BufferOutputStream()
    counts, spans, ends = [], [], []
    with pa.ipc.new_stream(sink, RECORD_SCHEMA, options=_OPTIONS[codec]) as writer:
        for batch in batches:
            writer.write_batch(batch)
            counts.append(batch.num_rows)
            spans.append(_span(batch.column(0)))
            ends.append(sink.tell())
    written = memoryview(sink.getvalue())
    slices = []
    start = len(SCHEMA_MESSAGE)
    for count, (low, high), end in zip(counts, spans, ends, strict=True):
        data = written[start:end]
        slices.append(Slice(data, count, low, high, crc32c(data)))
        start = end
    return slices


def _span(timestamps: pa.Array) -> tuple[int, int]:
    if len(timestamps) <= _FEW:
        values = timestamps.to_pylist()
        return min(values), max(values)
    span = pc.min_max(timestamps)
    return span["min"].as_py(), span["max"].as_py()


def decode(data: bytes | memoryview, crc: int) -> pa.RecordBatch:
    """Return the records of a slice, or raise `Corrupt` if the bytes are not what was stored."""
    if crc32c(data) != crc:
        raise Corrupt("the checksum of a slice does not match")
    return decode_unchecked(data)


def decode_unchecked(data: bytes | memoryview) -> pa.RecordBatch:
    """Return the records of a slice whose checksum was compared when it was read."""
    try:
        # As a stream, because only a stream can be read without threads, which take longer to
        # wake up than the work takes.
        with pa.ipc.open_stream(b"".join((SCHEMA_MESSAGE, data)), options=_READING) as stream:
            batch = stream.read_next_batch()
        # Arrow trusts every offset, and following a wrong one crashes the process. Validating
        # all of them takes a thirtieth of the time that it took to read them.
        batch.validate(full=True)
        return batch
    except (pa.ArrowException, EOFError, OSError, ValueError, StopIteration) as error:
        raise Corrupt(f"not a slice: {error}") from error
