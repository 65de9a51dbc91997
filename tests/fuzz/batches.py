"""Decoders of Kafka's record batches: of producers, and stored."""

from contextlib import suppress

import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from riacho.spark.read.columns import SourceColumns
from riacho.spark.read.ranges import StoredRange
from storage.errors import BadBatch, Corrupt
from storage.formats.entries import Entry, Kind
from storage.formats.kafka import batches, layout
from storage.formats.kafka.batches import Batches
from storage.formats.kafka.compression import COMPRESSIONS
from storage.formats.kafka.decoding import decode
from storage.formats.kafka.encoding import encode
from storage.formats.partitions import FIRST
from storage.formats.records import RECORD_SCHEMA
from storage.formats.slices import SCHEMA_MESSAGE
from storage.formats.zone_sets import EVERYWHERE
from storage.maintenance.compaction import reading
from storage.maintenance.compaction.hot import Hot
from tests.fuzz.decoder import CHECKSUM, Decoder, beside, with_checksum
from tests.fuzz.mutations import Envelope
from tests.storage.formats.kafka.builders import record_batches

LIMIT = 1 << 20

STORED = (
    "the batch was checked when it was written; whoever can write bytes and their checksum to the"
    " bucket can write any record too"
)

BATCHES = st.builds(
    lambda batch, codec: bytes(encode(batch, base_offset=0, codec=codec)),
    record_batches(),
    st.sampled_from(COMPRESSIONS),
)


def _opened(batch: bytes) -> bytes:
    return batch[layout.CHECKED_FROM :]


def _closed(rest: bytes) -> bytes:
    """Return the batch with this after its checksum."""
    rest = rest.ljust(layout.HEADER_BYTES - layout.CHECKED_FROM, b"\0")
    batch = bytes(layout.CHECKED_FROM) + rest
    header = layout.BatchHeader._make(layout.BATCH_HEADER.unpack_from(batch))
    return bytes(layout.sealed(header._replace(magic=layout.MAGIC), batch[layout.HEADER_BYTES :]))


def _record_count(data: bytes) -> int:
    """Return what the index would say if these bytes were stored."""
    with suppress(layout.Malformed):
        return max(1, sum(each.header.records for each in layout.headers(data)))
    return 1


def _compacted(data: bytes, crc: int) -> list[pa.RecordBatch]:
    """Return a slice as a compaction reads it: its checksum is compared when it is loaded."""
    if crc32c(data) != crc:
        raise Corrupt("the slice is damaged")
    count = _record_count(data)
    entry = Entry(
        partition=FIRST,
        end_offset=count,
        record_count=count,
        kind=Kind.KAFKA,
        object_id=bytes(16),
        position=0,
        length=len(data),
        min_ms=0,
        max_ms=0,
        crc=crc,
        zones=EVERYWHERE,
    )
    return list(reading._decode_slices(Hot.of([entry]), [data], False))


def _in_a_task(data: bytes, crc: int) -> list[pa.RecordBatch | None]:
    count = _record_count(data)
    spot = StoredRange(
        base_offset=0,
        end_offset=count,
        count=count,
        format="kafka",
        url="",
        start=0,
        end=len(data),
        crc32c=crc,
        min_timestamp=0,
        max_timestamp=2,
    )
    columns = SourceColumns(RECORD_SCHEMA, "t", 0, 0)
    return [piece.rows for piece in columns.decode_slices([spot], SCHEMA_MESSAGE + data)]


def _checked(data: bytes) -> Batches:
    batches.is_light(data)
    return batches.check(
        data, record_bytes_max=LIMIT, needs_keys=False, decompressed_bytes_max=LIMIT
    )


ALL = [
    Decoder(
        covers=(
            "storage.formats.kafka.layout.headers",
            "storage.formats.kafka.compression.unpack",
            "storage.formats.kafka.batches.is_light",
        ),
        decode=_checked,
        valid=BATCHES,
        envelope=Envelope(open=_opened, seal=_closed),
        errors=(BadBatch,),
        # The chunks of a stream and what they are joined to; places of at least seven bytes each.
        limit_bytes=3 * LIMIT,
        factor=100,
        why="a record of seven bytes has a dozen places and lengths of eight bytes each",
    ),
    Decoder(
        covers=("storage.formats.kafka.decoding.decode",),
        decode=beside(lambda data, crc: decode(data, crc).to_pylist()),
        valid=BATCHES.map(with_checksum),
        envelope=CHECKSUM,
        believes=STORED,
        # The buffers of a decompressor, whatever it gets.
        limit_bytes=2 * LIMIT,
        factor=1500,
        why="compressed records, and each of them as a dictionary of objects",
    ),
    Decoder(
        covers=("storage.maintenance.compaction.reading._decode_slices (kafka)",),
        decode=beside(_compacted),
        valid=BATCHES.map(with_checksum),
        envelope=CHECKSUM,
        believes=STORED,
        limit_bytes=2 * LIMIT,
        factor=1500,
        why="compressed records, joined",
    ),
    Decoder(
        covers=("riacho.spark.read.columns.SourceColumns.decode_slices (kafka)",),
        decode=beside(_in_a_task),
        valid=BATCHES.map(with_checksum),
        envelope=CHECKSUM,
        believes=STORED,
        limit_bytes=2 * LIMIT,
        factor=1500,
        why="compressed records as columns",
    ),
]
