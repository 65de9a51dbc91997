"""Session expiry: calls to a group look for silent members, and end their sessions."""

from collections.abc import Collection, Mapping, Sequence

from service.groups import sessions, state
from service.groups.classic import rounds
from service.groups.items import GroupItems, Known
from service.groups.sessions import Watch
from service.groups.state import Group
from service.world.clock import World
from storage import keys
from storage.errors import MetadataConflict, OutcomeUnknown
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
)


class SessionExpiry:
    def __init__(self, metadata: MetadataStore, items: GroupItems, world: World) -> None:
        self._metadata = metadata
        self._items = items
        self._world = world
        self._seen: dict[str, tuple[str, float]] = {}
        """By group: the version of its watch item, and when this process first saw it."""

    def is_due(self, group_id: str, group: Group, watch: Versioned | None) -> bool:
        """Whether at least an interval has passed since any gateway last looked."""
        return self._passed_ms(group_id, group, watch) is not None

    def forget_others(self, group_ids: Collection[str]) -> None:
        """Drop the cached state of all groups but these."""
        self._seen = {g: seen for g, seen in self._seen.items() if g in group_ids}

    async def look(self, group_id: str) -> bool:
        """Record silent members and remove those whose session is over.

        Return whether any session was over and has been ended. Does nothing if no look is due
        or if another gateway looks at the same time.
        """
        key = keys.group_watch(group_id)
        items = await self._metadata.get_many([keys.group(group_id), key])
        known = self._items.known(group_id, items.get(keys.group(group_id)))
        group = known.group
        stored = items.get(key)
        passed_ms = self._passed_ms(group_id, group, stored)
        if not group.members or passed_ms is None:
            return False
        members = await self._member_items(group_id)
        watch, over = sessions.look(
            Watch() if stored is None else sessions.decode(stored.value),
            group,
            {member_id: item.version for member_id, item in members.items()},
            passed_ms,
            self._world.now_ms(),
        )
        put = Put(key, sessions.encode(watch), None if stored is None else stored.version)
        strays = self._stray_ops(group_id, known, members)
        try:
            versions = await self._metadata.transact([put, *strays])
        except (MetadataConflict, OutcomeUnknown):
            return False
        self._seen[group_id] = (versions[key], self._world.monotonic_s())
        if not over and not sessions.laggards(watch, group):
            return False
        return await self._end(group_id, over, members, watch)

    def _passed_ms(self, group_id: str, group: Group, watch: Versioned | None) -> int | None:
        """Return the minimum time since the last look; None: no look is due yet."""
        if watch is None:
            return 0
        interval_ms = sessions.interval_ms(group)
        now_s = self._world.monotonic_s()
        seen = self._seen.get(group_id)
        if seen is None or seen[0] != watch.version:
            age_ms = self._world.now_ms() - sessions.decode(watch.value).looked_ms
            is_old = age_ms >= interval_ms + sessions.SKEW_MS_MAX
            seen = (watch.version, now_s - interval_ms / 1000 if is_old else now_s)
            self._seen[group_id] = seen
        passed_ms = round((now_s - seen[1]) * 1000)
        return passed_ms if passed_ms >= interval_ms else None

    async def _member_items(self, group_id: str) -> dict[str, Versioned]:
        prefix = keys.group_members(group_id)
        page = await self._metadata.list(prefix, limit=rounds.MEMBERS_MAX + 1)
        return {keys.parse_member(group_id, key): item for key, item in page}

    @staticmethod
    def _stray_ops(group_id: str, known: Known, items: Mapping[str, Versioned]) -> list[Op]:
        """Return what deletes items of members that are not in the group any more.

        They are left if more members are removed at once than fit into a transaction. The group
        must still be the one that was read: a member may have joined since.
        """
        strays = [m for m in items if m not in known.group.members][: TRANSACT_OPS_MAX - 2]
        if not strays or known.version is None:
            return []
        deletes = [Delete(keys.member(group_id, m), items[m].version) for m in strays]
        return [Check(keys.group(group_id), known.version), *deletes]

    async def _end(
        self,
        group_id: str,
        silent: Sequence[str],
        items: Mapping[str, Versioned],
        watch: Watch,
    ) -> bool:
        known = await self._items.read(group_id)
        over = sorted({*silent, *sessions.laggards(watch, known.group)})
        gone = [m for m in over if m in known.group.members][: TRANSACT_OPS_MAX - 2]
        if not gone:
            return True
        # The versions make the write fail if any of these members has sent a heartbeat since;
        # the next look then sees its new version.
        ops: list[Op] = [
            Delete(keys.member(group_id, m), items[m].version) for m in gone if m in items
        ]
        if known.group.classic is not None:
            new = rounds.leave(known.group, gone)
        else:
            new = state.leave(known.group, gone, await self._items.existing(0))
        try:
            await self._items.write(group_id, known, new, ops)
        except (MetadataConflict, OutcomeUnknown):
            return False
        return True
