"""Made-up states of partitions, as input of a plan."""

from collections.abc import Sequence

from storage.formats.entries import Entry, Kind
from storage.formats.segment_list import Cleaned, Segment, SegmentList
from storage.maintenance.compaction.hot import Hot
from storage.maintenance.compaction.plan import State

NOW_MS = 10_000_000_000


def segment(start: int, end: int, size_bytes: int, **fields: int) -> Segment:
    return Segment(
        **{  # type: ignore[arg-type]
            "object_id": start.to_bytes(16),
            "partition": 0,
            "first_offset": start,
            "start_offset": start,
            "end_offset": end,
            "record_count": end - start,
            "size_bytes": size_bytes,
            "footer_bytes": 10,
            "footer_crc": 0,
            "min_ms": NOW_MS - 1000,
            "max_ms": NOW_MS - 1000,
            "zones": 1,
            "written_ms": 0,
            **fields,
        }
    )


def entry(end: int, count: int, length: int, *, ms: int = NOW_MS - 1000) -> Entry:
    return Entry(
        partition=0,
        end_offset=end,
        record_count=count,
        kind=int(Kind.ARROW),
        object_id=end.to_bytes(16),
        position=8,
        length=length,
        min_ms=ms,
        max_ms=ms,
        crc=0,
        zones=1,
    )


def state(
    segments: Sequence[Segment] = (),
    entries: Sequence[Entry] = (),
    *,
    cleaned: Sequence[Cleaned] = (),
    log_start: int = 0,
) -> State:
    covers = segments[-1].end_offset if segments else 0
    return State(
        partition=0,
        number=0,
        log_start=log_start,
        covers=covers,
        list_id=b"",
        listed=SegmentList(tuple(segments), tuple(cleaned)),
        hot=Hot.of([each for each in entries if each.end_offset > max(covers, log_start)]),
    )
