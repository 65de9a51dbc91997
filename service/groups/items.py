"""Groups as items of the metadata table: reading and changing them.

A change is a pure function of the group as it was read, written by compare-and-set together with
everything else that must hold at the same moment. A gateway that loses a race reads again and
sees the other gateway's change. Topics are listed after the group is read, never before: a
gateway with an older list than the last writer then loses the race, and cannot undo its change.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from service.clock import World
from service.groups import state
from service.groups.state import Group
from storage import keys
from storage.errors import (
    Contended,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    Unavailable,
)
from storage.stores.metadata import (
    VALUE_BYTES_MAX,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)
from storage.topics.topics import Topics

ATTEMPTS_MAX: Final = 30
"""Maximum attempts to change a group item before a call fails."""

REPEAT_S_MAX: Final = 30.0
"""Stop retrying after this long: the client does not wait for the reply any more."""


GROUP_ID_CHARS_MAX: Final = 249
GROUPS_KEPT_MAX: Final = 256
"""Maximum number of groups whose last version is cached decoded."""


T = TypeVar("T")

_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_id(text: str) -> bool:
    return len(text) <= GROUP_ID_CHARS_MAX and _ID.fullmatch(text) is not None


def parse_group_id(text: str) -> str:
    """Return `text` if it can name a group, or raise `InvalidRequest`."""
    if not is_id(text):
        raise InvalidRequest(
            f"group: {text[:300]!r} is not a name: use 1 to {GROUP_ID_CHARS_MAX} letters, digits,"
            " dots, underscores and hyphens"
        )
    return text


@dataclass(frozen=True, slots=True)
class Known:
    """A group as it was read."""

    group: Group
    version: str | None


class GroupItems:
    def __init__(self, metadata: MetadataStore, topics: Topics, world: World) -> None:
        self._metadata = metadata
        self._topics = topics
        self._world = world
        self._counts: tuple[dict[str, int], float] | None = None
        self._decoded: dict[str, Known] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, group_id: str) -> Known:
        """Return the group as it is now; an empty one without version if there is none."""
        parse_group_id(group_id)
        return self.known(group_id, await self._metadata.get(keys.group(group_id)))

    def known(self, group_id: str, item: Versioned | None) -> Known:
        """Return what `item` says; the last version of a group is decoded only once."""
        if item is None:
            return Known(Group(), None)
        known = self._decoded.pop(group_id, None)
        if known is None or known.version != item.version:
            known = Known(state.decode(item.value), item.version)
        self._decoded[group_id] = known
        if len(self._decoded) > GROUPS_KEPT_MAX:
            del self._decoded[next(iter(self._decoded))]
        return known

    async def all(self) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        async for page in pages(self._metadata, "group/"):
            groups |= {k.removeprefix("group/"): state.decode(item.value) for k, item in page}
        return groups

    async def write(self, group_id: str, known: Known, new: Group, ops: Sequence[Op]) -> None:
        """Replace `known` by `new` and apply `ops` with it, or raise what `transact` raises."""
        value = state.encode(new)
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidRequest(
                f"group {group_id!r} would take {len(value)} bytes, the limit is"
                f" {VALUE_BYTES_MAX}: use fewer members, or topics_pattern instead of many topics"
            )
        await self._metadata.transact([Put(keys.group(group_id), value, known.version), *ops])

    async def changing(self, group_id: str, change: Callable[[Known, bool], Awaitable[T]]) -> T:
        """Call `change` with the current group; retry it after conflicts and lost replies.

        Its second argument is whether an earlier attempt may have been applied, its reply being
        lost. If the store is then unavailable or the attempts run out, this raises
        `OutcomeUnknown`. Calls within one process take turns: only gateways race, however many
        members join at once.
        """
        turn = self._turns.get(group_id)
        if turn is None:
            turn = self._turns[group_id] = asyncio.Lock()

        async def attempt(is_in_doubt: bool) -> T:
            return await change(await self.read(group_id), is_in_doubt)

        async with turn:
            return await repeat(self._world, f"group {group_id!r}", attempt)

    async def existing(self, age_max_s: float) -> Mapping[str, int]:
        """Return the partition count of every topic, at most `age_max_s` old."""
        now_s = self._world.monotonic_s()
        if self._counts is None or age_max_s <= 0 or now_s - self._counts[1] > age_max_s:
            topics = await self._topics.all()
            counts = {topic.name: topic.partition_count for topic in topics}
            if self._counts is not None and counts == self._counts[0]:
                counts = self._counts[0]  # The same object: callers compare by identity.
            self._counts = (counts, now_s)
        return self._counts[0]


async def repeat(world: World, what: str, attempt: Callable[[bool], Awaitable[T]]) -> T:
    """Call `attempt` until it meets no conflict and no unknown outcome; return its result.

    Gives up after `ATTEMPTS_MAX` attempts or `REPEAT_S_MAX`.
    """
    is_in_doubt = False
    began_s = world.monotonic_s()
    for number in range(ATTEMPTS_MAX):
        try:
            return await attempt(is_in_doubt)
        except MetadataConflict:
            pass
        except OutcomeUnknown:
            is_in_doubt = True
        except Unavailable as error:
            if is_in_doubt:
                raise OutcomeUnknown(f"{what} may have changed: {error}") from error
            raise
        # One attempt may itself retry for 15 seconds.
        if world.monotonic_s() - began_s > REPEAT_S_MAX:
            break
        await world.back_off(number + 1)
    if is_in_doubt:
        raise OutcomeUnknown(f"{what} may have changed; look before trying again")
    raise Contended(f"{what} is changed by others all the time; send it again")
