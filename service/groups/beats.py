"""Beats: the items whose versions show that members are there.

A heartbeat gives the member's item a new version. Members of Kafka's protocols send many more than
a session needs, so a beat of theirs is written only if this gateway has not written one within a
sixth of the session; their sessions are allowed a sixth more (`sessions.silence_ms_max`).
"""

from typing import Final

import msgspec

from service.groups.state import Places
from service.world.clock import World
from storage import keys
from storage.errors import MetadataConflict, OutcomeUnknown, UnknownMember
from storage.formats import frames
from storage.stores.metadata import MetadataStore, Put, Versioned

BEAT_ATTEMPTS_MAX: Final = 3
"""Maximum attempts to write a beat. Retried if the reply was lost and the beat is not stored."""

SPARED_SHARE: Final = 6
"""A beat is spared if one was written within the session timeout divided by this."""

WRITTEN_KEPT_MAX: Final = 10_000
"""Maximum number of members of whom this process knows when it last wrote their beat."""


class BeatItem(msgspec.Struct, array_like=True, frozen=True):
    beats: int
    generation: int
    """The newest generation that the member has named."""
    owned: Places | None = None
    """What it said last that it reads; kept for members that say so only when it changes."""


_BEAT: Final = msgspec.msgpack.Decoder(BeatItem)


class Beats:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world
        self._written: dict[str, tuple[str, float]] = {}
        """By key: the version that this process has written, and when it began to."""

    async def store(
        self,
        group_id: str,
        member_id: str,
        mine: Versioned,
        generation: int,
        *,
        session_ms: int = 0,
        owned: Places | None = None,
    ) -> None:
        """Store a beat, or raise: after a heartbeat the member reads on for a whole session.

        With `session_ms`, the beat is spared if this gateway has lately written one that says
        the same, and nothing was written since. `owned` is stored with it, None: as before.
        """
        key = keys.member(group_id, member_id)
        known = decode_beat(mine.value)
        now_s = self._world.monotonic_s()
        version, written_s = self._written.get(key, ("", 0.0))
        is_recent = version == mine.version and now_s - written_s < session_ms / 1000 / SPARED_SHARE
        if is_recent and known == _said(known, generation, owned):
            return
        for _ in range(BEAT_ATTEMPTS_MAX):
            written = await self._attempt(group_id, member_id, mine, generation, owned)
            if isinstance(written, Versioned):
                mine = written
                continue
            if written is not None and session_ms:
                self._note(key, written, now_s)
            return
        raise OutcomeUnknown("the table does not answer heartbeats; send it again")

    async def _attempt(
        self,
        group_id: str,
        member_id: str,
        mine: Versioned,
        generation: int,
        owned: Places | None,
    ) -> Versioned | str | None:
        """Return the version written, None if another beat is as good, or the item to try with."""
        key = keys.member(group_id, member_id)
        said = _said(decode_beat(mine.value), generation, owned)
        put = Put(key, encode_beat(said.beats + 1, said.generation, said.owned), mine.version)
        try:
            return (await self._metadata.transact([put]))[key]
        except MetadataConflict as conflict:
            current = conflict.current.get(key)
        except OutcomeUnknown:
            current = await self._metadata.get(key)
            if current is not None and current.version == mine.version:
                return current
        if current is None:
            raise unknown_member(group_id, member_id) from None
        # Another call of this member, or an earlier attempt, wrote a beat.
        is_as_good = owned is None or decode_beat(current.value).owned == owned
        return None if is_as_good else current

    def _note(self, key: str, version: str, now_s: float) -> None:
        self._written.pop(key, None)
        self._written[key] = (version, now_s)
        if len(self._written) > WRITTEN_KEPT_MAX:
            del self._written[next(iter(self._written))]


def unknown_member(group_id: str, member_id: str) -> UnknownMember:
    return UnknownMember(
        f"group {group_id!r} has no member {member_id[:300]!r}: its session ended or it left;"
        " join again"
    )


def _said(known: BeatItem, generation: int, owned: Places | None) -> BeatItem:
    """Return the item with what a heartbeat says; one that comes late says nothing of `owned`."""
    is_late = owned is None or generation < known.generation
    return BeatItem(
        known.beats, max(generation, known.generation), known.owned if is_late else owned
    )


def encode_beat(beats: int, generation: int, owned: Places | None = None) -> bytes:
    item = (beats, generation) if owned is None else (beats, generation, owned)
    return msgspec.msgpack.encode(item)


def decode_beat(value: bytes) -> BeatItem:
    return frames.decoded(value, _BEAT, "the beat of a member")
