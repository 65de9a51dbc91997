"""When a session ends: by versions that stand still, not by comparing clocks. Pure.

Every heartbeat gives the member's item a new version. From time to time, whichever call comes
along looks at all members of the group and notes their versions in the group's watch item. A
member whose version has not moved since the last look has been idle for that much longer; when
that adds up to its session timeout, the session is over.

How much time has passed between two looks is measured by the second looker alone, on a clock
that only it reads and that never jumps: from when it first saw what the first look had written.
That is never more than the truth, so no session ends early, however wrong anyone's time of day
is. A look counts for one and a half intervals at most: if nobody could be reached for a while,
members who beat three times in a session still come in time. A member that beats in the last
instant changes its version and thereby makes the write that would remove it fail.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.groups.state import Group
from storage.formats import frames

LOOKS: Final = 5
"""Looks in the time of a session. Fewer would end sessions late, more would cost reads."""

SKEW_MS_MAX: Final = 600_000
"""Clocks of two gateways differ by less. A gateway that sees a watch item for the first time
looks at once if, even so, an interval must have passed."""

_MAGIC: Final = b"RGW1"


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    looked_ms: int = 0
    """When the last look was, by the clock of whoever looked."""
    idle: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    """By member: the version last seen, and for how long it has been that one."""


def interval_ms(group: Group) -> int:
    """Return how often to look: `LOOKS` times in the shortest session."""
    shortest = min((m.session_timeout_ms for m in group.members.values()), default=30_000)
    return max(1, -(-shortest // LOOKS))


def look(
    watch: Watch, group: Group, versions: Mapping[str, str], passed_ms: int, now_ms: int
) -> tuple[Watch, list[str]]:
    """Return the watch after a look that found `versions`, and whose sessions are over.

    `passed_ms` is how long ago the last look was at least.
    """
    counted_ms = min(passed_ms, interval_ms(group) * 3 // 2)
    idle: dict[str, tuple[str, int]] = {}
    for member_id in group.members:
        version = versions.get(member_id, "")
        before = watch.idle.get(member_id)
        silent_ms = before[1] + counted_ms if before and before[0] == version else 0
        idle[member_id] = (version, silent_ms)
    over = [m for m, (_, ms) in idle.items() if ms >= group.members[m].session_timeout_ms]
    return Watch(looked_ms=now_ms, idle=idle), sorted(over)


_DECODER: Final = msgspec.msgpack.Decoder(Watch)


def encode(watch: Watch) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(watch))


def decode(value: bytes) -> Watch:
    return frames.unpack(_MAGIC, value, _DECODER, "the watch of a group")
