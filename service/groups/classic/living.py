"""Signs of life of classic members: their items get a new version often enough.

A heartbeat is written only if the last sign of the member is older than a sixth of its session;
so a member that sends one every three seconds of a session of 45 costs a write every nine. For that
its silence may last a sixth longer than its session (`service/groups/sessions.py`).
"""

from typing import Final

from service.groups.beats import SPARED_SHARE, decode_beat, encode_beat
from service.groups.classic.rounds import unknown
from service.world.clock import World
from storage import keys
from storage.errors import MetadataConflict, OutcomeUnknown
from storage.stores.metadata import MetadataStore, Put

ATTEMPTS_MAX: Final = 4

KEPT_MAX: Final = 50_000


class Living:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world
        self._signs: dict[str, float] = {}
        """By the key of a member: when this process wrote its last sign."""

    async def sign(self, group_id: str, member_id: str, session_ms: int, generation: int) -> None:
        """Keep the session of a member alive, or raise.

        Raises `UnknownMember` if the session has ended.
        """
        key = keys.member(group_id, member_id)
        now_s = self._world.monotonic_s()
        last_s = self._signs.pop(key, None)
        if last_s is None or now_s - last_s >= session_ms / 1000 / SPARED_SHARE:
            await self._write(key, member_id, generation)
            last_s = now_s
        self._signs[key] = last_s
        if len(self._signs) > KEPT_MAX:
            del self._signs[next(iter(self._signs))]

    async def _write(self, key: str, member_id: str, generation: int) -> None:
        for _ in range(ATTEMPTS_MAX):
            item = await self._metadata.get(key)
            if item is None:
                raise unknown(member_id)
            value = encode_beat(decode_beat(item.value).beats + 1, generation)
            try:
                await self._metadata.transact([Put(key, value, item.version)])
            except MetadataConflict:
                # Another call of this member was first; or a look removed it.
                if await self._metadata.get(key) is None:
                    raise unknown(member_id) from None
            except OutcomeUnknown:
                stored = await self._metadata.get(key)
                if stored is not None and stored.version == item.version:
                    continue
            return
        raise OutcomeUnknown("the table does not answer heartbeats; send it again")
