"""Decoders of Kafka's record batches: of producers, and stored."""

from hypothesis import strategies as st

from storage.errors import BadBatch
from storage.formats.kafka import batches, layout
from storage.formats.kafka.compression import COMPRESSIONS
from storage.formats.kafka.decoding import decode
from storage.formats.kafka.encoding import encode
from tests.fuzz.decoder import CHECKSUM, Decoder, beside, with_checksum
from tests.fuzz.mutations import Envelope
from tests.storage.formats.kafka.builders import record_batches

LIMIT = 1 << 20

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


ALL = [
    Decoder(
        covers=(
            "storage.formats.kafka.layout.headers",
            "storage.formats.kafka.compression.unpack",
        ),
        decode=lambda data: batches.check(
            data, record_bytes_max=LIMIT, needs_keys=False, decompressed_bytes_max=LIMIT
        ),
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
        believes="the batch was checked when it was written; whoever can write bytes and their"
        " checksum to the bucket can write any record too",
        # The buffers of a decompressor, whatever it gets.
        limit_bytes=2 * LIMIT,
        factor=1500,
        why="compressed records, and each of them as a dictionary of objects",
    ),
]
