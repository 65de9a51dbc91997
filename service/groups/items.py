"""Groups as items of the metadata table: reading and changing them.

A change is a pure function of the group as it was read, written by compare-and-set together with
everything else that must hold at the same moment. A gateway that loses a race reads again and
sees the other gateway's change. Topics are listed after the group is read, never before: a
gateway with an older list than the last writer then loses the race, and cannot undo its change.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from service.groups import state
from service.groups.news import News
from service.groups.state import Group
from service.world.clock import World
from storage import keys
from storage.cas import retry
from storage.errors import GroupFull, InvalidGroupId, InvalidRequest
from storage.stores.metadata import (
    VALUE_BYTES_MAX,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)
from storage.tasks import Arrivals
from storage.topics.items import NAME_CHARS_MAX
from storage.topics.topics import Topics

GROUPS_KEPT_MAX: Final = 256
"""Maximum number of groups whose last version is cached decoded."""


GROUP_BYTES_MAX: Final = NAME_CHARS_MAX
"""Maximum length of a group's name; a byte of it takes at most three in a key."""

T = TypeVar("T")


def parse_group_id(text: str) -> str:
    """Return `text` if it can name a group, or raise `InvalidGroupId`."""
    if not text or not text.isprintable() or len(text.encode(errors="replace")) > GROUP_BYTES_MAX:
        raise InvalidGroupId(
            f"group: {text[:300]!r} cannot name a group: use 1 to {GROUP_BYTES_MAX} bytes of"
            " UTF-8 without control characters"
        )
    return text


@dataclass(frozen=True, slots=True)
class Known:
    """A group as it was read."""

    group: Group
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All topics, as they were listed at one moment."""

    counts: Mapping[str, int]
    """Of partitions, by name."""
    ids: Mapping[str, bytes]
    names: Mapping[bytes, str]
    listed_s: float


class GroupItems:
    def __init__(self, metadata: MetadataStore, topics: Topics, world: World) -> None:
        self._metadata = metadata
        self._topics = topics
        self._world = world
        self._listed: Listed | None = None
        self._decoded: dict[str, Known] = {}
        self._arrivals = Arrivals[str]()
        self.news = News[Known]()

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
        return self._keep(group_id, known)

    def _keep(self, group_id: str, known: Known) -> Known:
        self._decoded.pop(group_id, None)
        self._decoded[group_id] = known
        if len(self._decoded) > GROUPS_KEPT_MAX:
            del self._decoded[next(iter(self._decoded))]
        return known

    async def all(self) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        async for page in pages(self._metadata, keys.GROUPS):
            groups |= {keys.parse_group(key): state.decode(item.value) for key, item in page}
        return groups

    async def write(
        self, group_id: str, known: Known, new: Group, ops: Sequence[Op]
    ) -> Mapping[str, str]:
        """Replace `known` by `new` and apply `ops` with it, or raise what `transact` raises.

        Return the version of each item that was put.
        """
        value = state.encode(new)
        if len(value) > VALUE_BYTES_MAX and new.classic is not None:
            raise GroupFull(
                f"group {group_id!r} would take {len(value)} bytes, the limit is"
                f" {VALUE_BYTES_MAX}: use fewer members, or shorter lists of topics"
            )
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidRequest(
                f"group {group_id!r} would take {len(value)} bytes, the limit is"
                f" {VALUE_BYTES_MAX}: use fewer members, or topics_pattern instead of many topics"
            )
        key = keys.group(group_id)
        versions = await self._metadata.transact([Put(key, value, known.version), *ops])
        written = self._keep(group_id, Known(new, versions[key]))
        # Asked only now: whatever was read while this was written is older.
        self.news.tell(group_id, written, self.news.ask(), self._world.monotonic_s())
        return versions

    async def changing(self, group_id: str, change: Callable[[Known, bool], Awaitable[T]]) -> T:
        """Call `change` with the current group; retry it after conflicts and lost replies.

        Its second argument is whether an earlier attempt may have been applied, its reply being
        lost. If the store is then unavailable or the attempts run out, this raises
        `OutcomeUnknown`. Calls within one process take turns: only gateways race, however many
        members join at once.
        """

        async def attempt(is_in_doubt: bool) -> T:
            return await change(await self.read(group_id), is_in_doubt)

        async with self._arrivals.in_turn(group_id):
            return await retry(f"group {group_id!r}", attempt, self._world.patience)

    async def removals(self, group_id: str, gone: Collection[str]) -> list[Op]:
        """Return the operations that end the sessions of these members."""
        items = await self._metadata.get_many([keys.member(group_id, m) for m in sorted(gone)])
        return [Delete(key, item.version) for key, item in items.items()]

    async def existing(self, age_max_s: float) -> Mapping[str, int]:
        """Return the partition count of every topic, at most `age_max_s` old."""
        return (await self.listed(age_max_s)).counts

    async def listed(self, age_max_s: float) -> Listed:
        """Return all topics as they were listed at most `age_max_s` ago."""
        now_s = self._world.monotonic_s()
        before = self._listed
        if before is not None and age_max_s > 0 and now_s - before.listed_s <= age_max_s:
            return before
        topics = await self._topics.all()
        counts: Mapping[str, int] = {topic.name: topic.partition_count for topic in topics}
        if before is not None and counts == before.counts:
            counts = before.counts  # The same object: callers compare by identity.
        self._listed = Listed(
            counts=counts,
            ids={topic.name: topic.topic_id for topic in topics},
            names={topic.topic_id: topic.name for topic in topics},
            listed_s=now_s,
        )
        return self._listed
