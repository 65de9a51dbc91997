"""Decoders of messages between the driver and the workers of a job."""

from hypothesis import strategies as st

from service.jobs import fsck
from service.jobs.sweep import tasks
from storage.maintenance.compaction import units
from storage.maintenance.compaction.hot import Hot
from storage.maintenance.sweep import ZoneTally
from tests.fuzz.decoder import Decoder, packed_decoder
from tests.storage.helpers.logs import ENTRIES

SLICES = st.lists(ENTRIES.map(lambda entry: entry._replace(kind=0, crc=entry.crc)), max_size=12)

ALL = [
    packed_decoder(
        "storage.maintenance.compaction.units.decode_units",
        tuple[units.Unit, ...],
        units.decode_units,
    ),
    packed_decoder(
        "storage.maintenance.compaction.units.decode_rewritten",
        tuple[units.Rewritten, ...],
        units.decode_rewritten,
    ),
    Decoder(
        covers=("storage.maintenance.compaction.hot.Hot.decode",),
        decode=lambda data: Hot.decode(data).rows(),
        valid=SLICES.map(lambda entries: Hot.of(entries).encode()),
        factor=32 * 1024 * 12,
        why="zstd inflates to 32 KiB a byte at most; of a row of 88 bytes nine objects are made",
    ),
    packed_decoder("service.jobs.fsck.decode_task", tuple[str, str, bool], fsck.decode_task),
    Decoder(
        covers=("service.jobs.fsck.decode_report",),
        decode=fsck.decode_report,
        valid=packed_decoder("", fsck._Report, fsck.decode_report).valid,
        encode=fsck.encode_report,
        factor=250,
        why="a few bytes may be a zone: an object with a dictionary",
    ),
    packed_decoder(
        "service.jobs.sweep.tasks.decode_task",
        tasks.Listing | tasks.References | tasks.Keys,
        tasks.decode_task,
    ),
    packed_decoder("service.jobs.sweep.tasks.decode", dict[str, ZoneTally], tasks.decode),
]
