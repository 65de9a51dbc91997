"""Decoders of stored data: items of the table, objects of the bucket."""

import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from service.controller import live_gateways as registry
from service.controller import verification
from service.groups import beats, sessions
from service.groups import offsets as group_offsets
from service.groups import state as groups
from service.groups.classic import consumers
from service.transactions import guards, ids
from service.transactions import state as transactions
from storage import keys, leases
from storage.crypto import keyring
from storage.errors import Corrupt
from storage.formats import compacted, frames, index, segment_list, segments, slices
from storage.formats.compacted_footer import column_ranges
from storage.formats.entries import Entry
from storage.formats.index import Page
from storage.head import head as heads
from storage.head.producers import Window
from storage.lanes import windows
from storage.maintenance.compaction import reading
from storage.maintenance.compaction.hot import Hot
from storage.reading import table_batches
from storage.stores.metadata import Versioned
from storage.topics import deleted as gone_topics
from storage.topics import items as topic_items
from storage.zones import items as zone_items
from tests.fuzz.decoder import (
    CHECKSUM,
    STRUCTS,
    Decoder,
    beside,
    framed,
    packed_decoder,
    sealed,
    with_checksum,
)
from tests.fuzz.mutations import Envelope
from tests.fuzz.values import json_of, packed
from tests.storage.formats.test_compacted import footer_of, plain, written
from tests.storage.formats.test_index import SEALED_ENTRIES, SORTED_ENTRIES
from tests.storage.formats.test_segments import PARTS, segment_of
from tests.storage.helpers.logs import BATCHES, IDS, batch_of

BELIEVED = "whoever can write bytes and their checksum to the bucket can write any record too"

CODECS = st.sampled_from(["lz4", "zstd", "none"])
SLICES = st.builds(
    lambda batch, codec: bytes(slices.encode([batch], codec)[0].data), BATCHES, CODECS
)
THREE = batch_of(b"a", b"b" * 100, b"c")
SLICES_OF_THREE = CODECS.map(lambda codec: bytes(slices.encode([THREE], codec)[0].data))
HOT = Hot.of([Entry(0, 3, 3, 0, bytes(16), 8, 100, 0, 2, 0, 1)])
SEGMENTS = PARTS.map(segment_of)

_TRAILER = struct.Struct("<II4s")


def _opened_segment(segment: bytes) -> bytes:
    """Return a segment without its trailer, which contains the checksum of the footer."""
    return segment[: -_TRAILER.size]


def _closed_segment(body: bytes) -> bytes:
    # About the length of a footer with one row.
    footer = body[-min(len(body), 60) :]
    return body + _TRAILER.pack(len(footer), crc32c(footer), b"RSG1")


@cache
def _parquet() -> tuple[bytes, compacted.Footer]:
    with TemporaryDirectory() as folder:
        segment = written(Path(folder) / "s", [plain(range(60))], row_group_bytes=2000)
        return segment.path.read_bytes(), footer_of(segment)


def _footer_bytes() -> bytes:
    whole, footer = _parquet()
    return whole[-footer.length :]


def _read_slice(data: bytes, crc: int) -> list[pa.RecordBatch]:
    """Return a slice as a compaction reads it: its checksum is compared when it is loaded."""
    if crc32c(data) != crc:
        raise Corrupt("the slice is damaged")
    return list(reading._decode_slices(HOT, [data], False))


def _row_groups(whole: bytes) -> list[pa.RecordBatch]:
    """Return the records of a segment whose footer is known, read in both ways."""
    _, footer = _parquet()
    found = []
    for group in footer.row_groups:
        data = whole[group.position : group.end]
        found.append(compacted.decode_row_group(footer, group.number, data))
    for group in footer.row_groups:
        ranges = column_ranges(footer, group.number, ["key"])
        pieces = [whole[start:end] for start, end in ranges]
        found.append(compacted.decode_columns(footer, group.number, ranges, pieces, ["key"]))
    return found


def _classic_group(payload: bytes) -> bytes:
    pressed = pa.compress(payload, codec="zstd", asbytes=True)
    return frames.seal(groups._CLASSIC_MAGIC, struct.pack("<I", len(payload)) + pressed)


def _item(value: bytes) -> Versioned:
    return Versioned(value, "v")


ITEMS = [
    framed("storage.head.head.decode", b"RHD1", heads.Head, heads.decode, heads.encode),
    framed("storage.leases.decode", b"RLE1", leases.LeaseItem, leases.decode, leases.encode),
    framed(
        "storage.zones.items.decode",
        b"RZN1",
        zone_items.ZoneItem,
        zone_items.decode,
        zone_items.encode,
    ),
    framed(
        "service.controller.verification.decode",
        b"RVF1",
        verification.VerificationItem,
        verification.decode,
        verification.encode,
    ),
    framed(
        "storage.crypto.keyring.decode",
        b"RDK1",
        keyring.StoredKey,
        keyring.decode,
        keyring.encode,
    ),
    framed(
        "storage.topics.deleted.decode",
        b"RGN1",
        gone_topics.GoneTopic,
        gone_topics.decode,
        gone_topics.encode,
    ),
    framed(
        "storage.topics.items.decode",
        b"RTP1",
        topic_items.StoredTopic,
        lambda value: topic_items.decode("t", _item(value)),
        lambda topic: topic_items.encode(
            topic_items.StoredTopic(
                topic.topic_id,
                topic.partition_count,
                topic.replication_factor,
                dict(topic.config.given),
                topic.created_ms,
            )
        ),
    ),
    framed(
        "service.groups.state.decode", groups._MAGIC, groups.Group, groups.decode, groups.encode
    ),
    Decoder(
        covers=("service.groups.state.decode (classic)",),
        decode=groups.decode,
        valid=packed(groups.Group).map(_classic_group),
        envelope=sealed(groups._CLASSIC_MAGIC),
        encode=groups.encode,
        factor=250,
        limit_bytes=groups.CLASSIC_BYTES_MAX,
        why=STRUCTS,
    ),
    Decoder(
        covers=(
            "service.groups.classic.consumers.assigned",
            "service.groups.classic.consumers._count",
            "service.groups.classic.consumers._text",
            "service.groups.classic.consumers._places",
        ),
        decode=consumers.assigned,
        valid=st.just(struct.pack(">hih1si2i", 1, 1, 1, b"t", 2, 0, 1)),
        errors=(),
        factor=60,
        why="a partition is 4 bytes, and a pair of references and a number in memory",
    ),
    Decoder(
        covers=("service.groups.classic.consumers.owned",),
        decode=consumers.owned,
        valid=st.just(struct.pack(">hih1siih1si2i", 1, 1, 1, b"t", -1, 1, 1, b"t", 2, 0, 1)),
        errors=(),
        factor=60,
        why="a partition is 4 bytes, and a pair of references and a number in memory",
    ),
    framed(
        "service.groups.sessions.decode",
        sessions._MAGIC,
        sessions.Watch,
        sessions.decode,
        sessions.encode,
    ),
    framed(
        "service.groups.offsets._decode",
        group_offsets._MAGIC,
        group_offsets._Stored,
        lambda value: group_offsets._decode(_item(value)),
    ),
    framed(
        "service.transactions.state.decode",
        transactions._MAGIC,
        transactions.Transaction,
        transactions.decode,
        transactions.encode,
    ),
    framed(
        "service.transactions.guards.decode_window",
        guards._WINDOW_MAGIC,
        guards.Window,
        lambda value: guards.decode_window(_item(value)),
    ),
    framed(
        "service.transactions.guards.decode_kept",
        guards._KEY_MAGIC,
        guards.Kept,
        lambda value: guards.decode_kept(_item(value)),
    ),
    framed(
        "service.transactions.ids._decode_counter",
        b"RPC1",
        int,
        lambda value: ids._decode_counter(_item(value)),
    ),
    packed_decoder("service.groups.beats.decode_beat", beats.BeatItem, beats.decode_beat),
    Decoder(
        covers=("service.controller.live_gateways.decode",),
        decode=registry.decode,
        valid=json_of(registry.GatewayItem),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.transactions.ids.decode_owner",),
        decode=ids.decode_owner,
        valid=st.text(max_size=20).map(lambda text: ids.owner_op(1, text).value),
        envelope=sealed(b"RPR1"),
        encode=lambda owner: ids.owner_op(1, owner).value,
        factor=4,
        why="text of up to four bytes a character",
    ),
]

OBJECTS = [
    Decoder(
        covers=("storage.formats.frames.unseal",),
        decode=lambda data: bytes(frames.unseal(b"TEST", data)),
        valid=st.binary(max_size=60).map(lambda payload: frames.seal(b"TEST", payload)),
        envelope=sealed(b"TEST"),
        encode=lambda payload: frames.seal(b"TEST", payload),
        factor=2,
        why="the copy that is made here",
    ),
    framed(
        "storage.lanes.windows.decode",
        b"RPW1",
        list[Window],
        windows.decode,
        lambda page: windows.encode(page.values()),
    ),
    framed(
        "storage.formats.segment_list.decode",
        b"RSL1",
        segment_list.SegmentList,
        segment_list.decode,
        segment_list.encode,
    ),
    framed(
        "storage.formats.index.decode_members",
        b"RLS1",
        index.Members,
        index.decode_members,
        index.encode_members,
    ),
    Decoder(
        covers=("storage.formats.index.Page.decode", "storage.formats.index.Page._unpack"),
        decode=lambda data: Page.decode(data).entries(),
        valid=SORTED_ENTRIES.map(lambda entries: Page.of(entries).encode()),
        envelope=sealed(b"RPG1"),
        encode=lambda entries: Page.of(entries).encode(),
        believes=BELIEVED,
        factor=60,
        why="LZ4 of columns that are alike, and each entry as fourteen objects",
    ),
    Decoder(
        covers=("storage.formats.index.Page.decode (sealed)",),
        decode=lambda data: Page.decode(data).entries(),
        valid=SEALED_ENTRIES.map(lambda entries: Page.of(entries).encode()),
        envelope=sealed(b"RPG2"),
        encode=lambda entries: Page.of(entries).encode(),
        believes=BELIEVED,
        factor=60,
        why="LZ4 of columns that are alike, and each entry as fourteen objects",
    ),
    Decoder(
        covers=("storage.formats.slices.decode", "storage.formats.slices.decode_unchecked"),
        decode=beside(lambda data, crc: slices.decode(data, crc).to_pylist()),
        valid=SLICES.map(with_checksum),
        envelope=CHECKSUM,
        believes=BELIEVED,
        factor=60,
        why="compressed columns, and each record as a dictionary of objects",
    ),
    Decoder(
        covers=("storage.formats.segments.footer", "storage.formats.segments.verified"),
        decode=segments.footer,
        valid=SEGMENTS,
        envelope=Envelope(open=_opened_segment, seal=_closed_segment),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("storage.reading.table_batches.decode",),
        decode=table_batches.decode,
        valid=st.binary(max_size=2000).map(table_batches.encode),
        envelope=sealed(b"RTB1"),
        encode=table_batches.encode,
        factor=2,
        limit_bytes=table_batches.SEGMENT_BYTES_MAX,
        why="no segment in the table has more bytes",
    ),
    Decoder(
        covers=("storage.formats.compacted_footer.parse_footer",),
        decode=beside(compacted.parse_footer),
        envelope=CHECKSUM,
        valid=st.builds(_footer_bytes).map(with_checksum),
        believes=BELIEVED,
        factor=60,
        why="rows of JSON, each an object of nine numbers",
    ),
    Decoder(
        covers=(
            "storage.formats.compacted.decode_row_group",
            "storage.formats.compacted.decode_columns",
            "storage.formats.compacted._decoded",
        ),
        decode=_row_groups,
        valid=st.builds(_parquet).map(lambda pair: pair[0]),
        believes=BELIEVED,
        factor=200,
        why="columns of dictionaries and LZ4, read twice",
    ),
    Decoder(
        covers=("storage.maintenance.compaction.reading._decode_slices",),
        decode=beside(_read_slice),
        valid=SLICES_OF_THREE.map(with_checksum),
        envelope=CHECKSUM,
        believes=BELIEVED,
        factor=60,
        why="compressed columns, joined",
    ),
]

NAMES = [
    Decoder(
        covers=("storage.keys.parse_key",),
        decode=lambda data: keys.parse_key(data.decode("latin-1")),
        valid=IDS.map(lambda object_id: keys.hot_segment(object_id).encode()),
        errors=(),
        factor=8,
        why="a key that is not ours is no error, but unknown",
    ),
    Decoder(
        covers=("storage.keys.parse_part", "storage.keys.parse_group", "storage.keys.parse_member"),
        decode=lambda data: keys.parse_group(data.decode("latin-1")),
        valid=st.text().map(lambda name: keys.part(name.replace("\ud800", "")).encode()),
        errors=(),
        factor=8,
        why="any text is a name",
    ),
]

ALL = [*ITEMS, *OBJECTS, *NAMES]
