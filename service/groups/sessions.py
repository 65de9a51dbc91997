"""When a session ends: by versions that stand still, not by comparing clocks. Pure.

Every heartbeat gives the member's item a new version. From time to time, whichever call comes
along looks at all members of the group and notes their versions in the group's watch item. A
member whose version has not moved since the last look has been idle for one interval more; when
that adds up to its session timeout, the session is over.

A look counts for one and a half intervals at most, however much later a clock says it is, so a
machine whose clock is minutes ahead cannot end a session in one stroke: that takes several looks
in a row, with the member silent through all of them. A member that beats in the last instant
changes its version and thereby makes the write that would remove it fail.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.groups.state import Group
from storage import frames
from storage.errors import Corrupt

LOOKS: Final = 5
"""Looks in the time of a session. Fewer would end sessions late, more would cost reads."""

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
    watch: Watch, group: Group, versions: Mapping[str, str], now_ms: int
) -> tuple[Watch, list[str]]:
    """Return the watch after a look that found `versions`, and whose sessions are over."""
    interval = interval_ms(group)
    passed_ms = min(max(now_ms - watch.looked_ms, interval), interval * 3 // 2)
    idle: dict[str, tuple[str, int]] = {}
    for member_id in group.members:
        version = versions.get(member_id, "")
        before = watch.idle.get(member_id)
        silent_ms = before[1] + passed_ms if before and before[0] == version else 0
        idle[member_id] = (version, silent_ms)
    over = [m for m, (_, ms) in idle.items() if ms >= group.members[m].session_timeout_ms]
    return Watch(looked_ms=now_ms, idle=idle), sorted(over)


_DECODER: Final = msgspec.msgpack.Decoder(Watch)


def encode(watch: Watch) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(watch))


def decode(value: bytes) -> Watch:
    try:
        return _DECODER.decode(frames.unseal(_MAGIC, value))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the watch of a group does not decode: {error}") from error
