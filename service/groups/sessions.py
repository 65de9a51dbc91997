"""Session expiry by versions that do not change, not by comparing clocks. Pure.

Every heartbeat gives the member's item a new version. Once per interval, some call to the group
looks at all its members and records their versions in the group's watch item. A member whose
version is the same as at the last look has been idle for that much longer; when this adds up to
its session timeout, the session is over.

The time between two looks is measured by the second gateway alone, on its own monotonic clock:
from when it first saw what the first look had written. That is never more than the real time, so
no session ends early, however wrong the wall clock of a gateway is. A look counts for at most one
and a half intervals: after an outage of all gateways, members that send three heartbeats per
session are still in time. A heartbeat in the last instant changes the member's version, so the
write that would remove the member fails.

A member of Kafka's consumer protocol that still holds what it must give up is measured in the same
way: it is removed when its rebalance timeout has passed since the first look that found it so.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.groups.beats import SPARED_SHARE
from service.groups.state import Group
from storage.formats import frames

LOOKS: Final = 5
"""Looks per session timeout. Fewer would end sessions late, more would cost reads."""

SKEW_MS_MAX: Final = 600_000
"""Maximum difference between the clocks of two gateways. A gateway that sees a watch item for the
first time looks at once if an interval must have passed even with this difference."""

_MAGIC: Final = b"RGW1"


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    looked_ms: int = 0
    """Time of the last look, by the clock of the gateway that looked."""
    idle: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    """By member: the version last seen, and for how many ms it has not changed."""
    holds: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """By member that must give partitions up: the generation since which it knows, and for how
    many ms."""


def interval_ms(group: Group) -> int:
    """Return the time between looks: `LOOKS` of them in the shortest session timeout."""
    shortest = min((m.session_timeout_ms for m in group.members.values()), default=30_000)
    return max(1, -(-shortest // LOOKS))


def look(
    watch: Watch, group: Group, versions: Mapping[str, str], passed_ms: int, now_ms: int
) -> tuple[Watch, list[str]]:
    """Return the watch after a look that found `versions`, and the members to remove.

    `passed_ms` is the minimum time since the last look.
    """
    counted_ms = min(passed_ms, interval_ms(group) * 3 // 2)
    idle: dict[str, tuple[str, int]] = {}
    for member_id in group.members:
        version = versions.get(member_id, "")
        before = watch.idle.get(member_id)
        silent_ms = before[1] + counted_ms if before and before[0] == version else 0
        idle[member_id] = (version, silent_ms)
    holds = {m: (group.told(m), _held_ms(watch, group, m, counted_ms)) for m in group.held}
    over = [m for m, (_, ms) in idle.items() if ms >= silence_ms_max(group, m)]
    return Watch(looked_ms=now_ms, idle=idle, holds=holds), sorted(over)


def silence_ms_max(group: Group, member_id: str) -> int:
    """Return the length of a silence that ends the session.

    A sixth more than was agreed for members of Kafka's protocols, whose beats are not all written.
    """
    member = group.members[member_id]
    timeout_ms = member.session_timeout_ms
    if member.protocol == "http" and group.classic is None:
        return timeout_ms
    return timeout_ms + -(-timeout_ms // SPARED_SHARE)


def laggards(watch: Watch, group: Group) -> list[str]:
    """Return the members that hold what they must give up, for longer than they may."""
    found = []
    for m, (told, ms) in watch.holds.items():
        member = group.members.get(m)
        if member is None or member.protocol == "http" or m not in group.held:
            continue
        if told == group.told(m) and ms >= member.rebalance_timeout_ms > 0:
            found.append(m)
    return sorted(found)


def _held_ms(watch: Watch, group: Group, member_id: str, counted_ms: int) -> int:
    told, ms = watch.holds.get(member_id, (-1, 0))
    return ms + counted_ms if told == group.told(member_id) else 0


_DECODER: Final = msgspec.msgpack.Decoder(Watch)


def encode(watch: Watch) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(watch))


def decode(value: bytes) -> Watch:
    return frames.unpack(_MAGIC, value, _DECODER, "the watch of a group")
