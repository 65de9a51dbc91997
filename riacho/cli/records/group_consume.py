"""`riacho consume -g`: a member of a group that prints what it reads, and commits that.

Records are printed first and committed then, so an interruption in between prints them again:
at least once.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from riacho.cli.output import bad_usage, note
from riacho.cli.records.formats import Origin
from riacho.errors import CommitFailed

if TYPE_CHECKING:
    from riacho.admin.admin import Admin
    from riacho.consumer.consumer import Consumer
    from riacho.records import Record

POLL_MS: Final = 60_000
POLL_RECORDS: Final = 2_000

END_POLL_MS: Final = 500
"""With --exit: how long to wait for records before asking whether the group is at the end."""


def consume_in_group(
    url: str,
    group: str,
    topic: str,
    origin: Origin,
    show: "Callable[[Sequence[Record]], bytes]",
    exit_at_end: bool,
    count: int | None,
) -> None:
    """Print this member's share of `topic` until stopped, then leave the group."""
    from riacho.admin.admin import Admin
    from riacho.consumer.consumer import Consumer

    if origin.kind not in ("beginning", "end"):
        hint = "a group goes on where it stopped; give beginning or end for what it never read"
        raise bad_usage(f"{hint}, or move it by `riacho group reset`", "--offset")
    left = count if count is not None else sys.maxsize
    try:
        with (
            Admin(url) as admin,
            Consumer(
                url,
                group_id=group,
                auto_offset_reset="earliest" if origin.kind == "beginning" else "latest",
                enable_auto_commit=False,
                max_poll_records=POLL_RECORDS,
                client_id="riacho-consume",
            ) as consumer,
        ):
            infos = admin.partitions(topic)
            ends = {i.partition: i.high_watermark for i in infos if i.high_watermark}
            consumer.subscribe(topic)
            while left:
                timeout_ms = END_POLL_MS if exit_at_end else POLL_MS
                records = consumer.poll(timeout_ms, max_records=min(left, POLL_RECORDS))
                left -= len(records)
                sys.stdout.buffer.write(show(records))
                sys.stdout.buffer.flush()
                if records or exit_at_end:
                    _commit(consumer)
                if exit_at_end and not records and _is_at_end(admin, group, topic, ends):
                    return
    except KeyboardInterrupt:
        # The usual way to stop waiting, so it is no failure.
        sys.stdout.flush()


def _commit(consumer: "Consumer") -> None:
    try:
        consumer.commit()
    except CommitFailed as error:
        note(f"riacho: not committed, another member will print it again: {error}")


def _is_at_end(admin: "Admin", group: str, topic: str, ends: dict[int, int]) -> bool:
    """Whether the members of the group, together, have read up to `ends`."""
    committed = {o.partition: o.offset for o in admin.group_offsets(group) if o.topic == topic}
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())
