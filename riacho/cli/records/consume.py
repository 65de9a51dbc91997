"""`riacho consume`: records become lines on stdout."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from riacho.cli.output import Url, bad_usage
from riacho.cli.records.decoding import RecordDecoder
from riacho.cli.records.formats import (
    DEFAULT_FORMAT,
    Origin,
    begin_offset,
    compile_format,
    parse_origin,
    render_json,
)
from riacho.cli.records.group_consume import consume_in_group
from riacho.http.gateway import DEFAULT_URL
from storage.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from riacho.admin.admin import Admin, PartitionInfo
    from riacho.consumer.consumer import Consumer
    from riacho.records import Record

Show: TypeAlias = "Callable[[Sequence[Record]], bytes]"

POLL_MS: Final = 60_000
POLL_RECORDS: Final = 2_000

END_POLL_MS: Final = 500
"""With --exit: how long to wait for records before looking whether the end is reached, where
compaction may have left none."""


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Default: all of them.")
    ] = None,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            help="beginning, end, N, -N (the last N of each partition), or @TIME"
            " (ms since 1970 or ISO 8601).",
        ),
    ] = "beginning",
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop where the log ends now.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="%t topic, %p partition, %o offset, %T timestamp, %k key, %v value,"
            " %s length of the value, %h headers, %%, \\n, \\t. Default: %v\\n",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="One line of JSON per record.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Share the topic with the other members of this group, and commit what was"
            " printed. -o says where to begin if nothing is committed: beginning or end.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print what names a schema as it is, not decoded.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the records of a topic, and then wait for more.

    \b
    riacho consume orders                         # all there is, then what comes
    riacho consume orders -o end                  # only what comes
    riacho consume orders -o -5 -e                # the last five of each partition
    riacho consume orders -o @2026-11-16T09:00Z -e -J | jq .value
    riacho consume orders -p 0 -o 42 -n 1 -f '%T %k=%v\\n'
    riacho consume orders -g billing              # our share, from where the group has come to
    riacho consume orders -g billing -e           # until the group has read all there is now

    Keys and values that name a schema of the registry are decoded, and printed as JSON.
    """
    try:
        origin = parse_origin(offset)
    except ValueError as error:
        raise bad_usage(str(error), "--offset") from None
    with printing(_renderer(format_, as_json), None if raw else url) as show:
        _consume(url, topic, origin, show, group, partition, exit_at_end, count)


@contextmanager
def printing(render: "Callable[[Record], bytes]", url: str | None) -> "Iterator[Show]":
    """Yield what makes records to lines; `url`: where the registry is that decodes them."""
    if url is None:
        yield lambda records: b"".join(map(render, records))
        return
    decoder = RecordDecoder(url)
    try:
        yield lambda records: b"".join(map(render, decoder.decoded(records)))
    finally:
        decoder.close()


def _consume(
    url: str,
    topic: str,
    origin: Origin,
    show: "Show",
    group: str | None,
    partition: int | None,
    exit_at_end: bool,
    count: int | None,
) -> None:
    from riacho.admin.admin import Admin

    if group is not None:
        if partition is not None:
            raise bad_usage("the group says which partitions are read", "--partition")
        consume_in_group(url, group, topic, origin, show, exit_at_end, count)
        return
    with Admin(url) as admin:
        infos = _wanted(admin.partitions(topic), topic, partition)
        spans = [_span(admin, topic, info, origin) for info in infos]
    try:
        _print_records(url, topic, spans, show, exit_at_end, count)
    except KeyboardInterrupt:
        # The usual way to stop waiting, so it is no failure.
        sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The offsets of a partition from where we begin to where it ended when we did."""

    partition: int
    start: int
    end: int


def _renderer(text: str | None, as_json: bool) -> "Callable[[Record], bytes]":
    if as_json:
        if text is not None:
            raise bad_usage("give --format or --json, not both", "--format")
        return render_json
    try:
        return compile_format(text if text is not None else DEFAULT_FORMAT)
    except ValueError as error:
        raise bad_usage(str(error), "--format") from None


def _wanted(
    infos: "list[PartitionInfo]", topic: str, partition: int | None
) -> "list[PartitionInfo]":
    if partition is None:
        return infos
    if partition >= len(infos):
        raise UnknownTopicOrPartition(
            f"topic {topic!r} has partitions 0 to {len(infos) - 1}, not {partition}"
        )
    return [infos[partition]]


def _span(admin: "Admin", topic: str, info: "PartitionInfo", origin: Origin) -> OffsetSpan:
    start = begin_offset(origin, info.log_start_offset, info.high_watermark)
    if start is None:
        start = admin.offsets(topic, info.partition, origin.number).offset
    return OffsetSpan(info.partition, start, info.high_watermark)


def _print_records(
    url: str,
    topic: str,
    spans: list[OffsetSpan],
    show: "Show",
    exit_at_end: bool,
    count: int | None,
) -> None:
    from riacho.consumer.consumer import Consumer

    ends = {span.partition: span.end for span in spans if span.start < span.end}
    left = count if count is not None else sys.maxsize
    with Consumer(url, auto_offset_reset="none", max_poll_records=POLL_RECORDS) as consumer:
        consumer.assign((topic, span.partition) for span in spans)
        for span in spans:
            consumer.seek(topic, span.partition, span.start)
        while left and (ends or not exit_at_end):
            timeout_ms = END_POLL_MS if exit_at_end else POLL_MS
            records = consumer.poll(timeout_ms, max_records=min(left, POLL_RECORDS))
            if exit_at_end:
                records = [r for r in records if r.offset < ends.get(r.partition, 0)]
            left -= len(records)
            sys.stdout.buffer.write(show(records))
            sys.stdout.buffer.flush()
            if exit_at_end:
                for partition in _reached(consumer, topic, ends):
                    del ends[partition]
                    consumer.pause((topic, partition))


def _reached(consumer: "Consumer", topic: str, ends: dict[int, int]) -> list[int]:
    """Return the partitions of which everything before their end was returned."""
    return [
        partition for partition, end in ends.items() if consumer.position(topic, partition) >= end
    ]
