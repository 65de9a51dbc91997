"""Quotas as items of the metadata table.

The key is a digest of the user and the client, which may contain anything; the item repeats them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from service.security.quotas.limits import (
    DEFAULT,
    QuotaEntity,
    QuotaKind,
    QuotaLimits,
    QuotaTable,
    user_of,
)
from service.security.versions import change_security
from service.world.clock import World
from storage import keys
from storage.errors import InvalidRequest
from storage.formats import frames
from storage.stores.metadata import Delete, MetadataStore, Op, Put, pages

NAME_CHARS_MAX: Final = 500

_MAGIC: Final = b"RQT1"


class StoredQuota(msgspec.Struct, array_like=True, frozen=True):
    user: str | None
    client_id: str | None
    limits: dict[str, float]


_DECODER: Final = msgspec.msgpack.Decoder(StoredQuota)


def parse_entity(user: str | None, client_id: str | None) -> QuotaEntity:
    """Return for whom a quota is, or raise `InvalidRequest`. A user may be given as `User:ana`."""
    for name, text in (("user", user), ("client_id", client_id)):
        if text is not None and not 0 < len(text) <= NAME_CHARS_MAX:
            raise InvalidRequest(f"{name}: must have 1 to {NAME_CHARS_MAX} characters")
    if user is None and client_id is None:
        raise InvalidRequest(f"give a user, a client_id, or both; {DEFAULT!r} is for all others")
    return QuotaEntity(None if user is None else user_of(user), client_id)


def _key(entity: QuotaEntity) -> str:
    digest = hashlib.sha256(msgspec.msgpack.encode(entity)).hexdigest()
    return keys.quota(digest[:32])


def _decode(value: bytes) -> tuple[QuotaEntity, QuotaLimits]:
    stored = frames.unpack(_MAGIC, value, _DECODER, "a quota")
    known = {kind: rate for kind, rate in stored.limits.items() if kind in set(QuotaKind)}
    return QuotaEntity(stored.user, stored.client_id), QuotaLimits(**known)


def _encode(entity: QuotaEntity, limits: QuotaLimits) -> bytes:
    rates = {kind.value: rate for kind in QuotaKind if (rate := limits.of(kind)) is not None}
    stored = StoredQuota(entity.user, entity.client_id, rates)
    return frames.seal(_MAGIC, msgspec.msgpack.encode(stored))


async def all_quotas(metadata: MetadataStore) -> QuotaTable:
    """Return every quota, as they are now."""
    return QuotaTable(
        dict(
            [_decode(item.value) async for page in pages(metadata, keys.QUOTAS) for _, item in page]
        )
    )


class QuotaItems:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world

    async def all(self) -> Mapping[QuotaEntity, QuotaLimits]:
        return (await all_quotas(self._metadata)).quotas

    async def change(
        self, entity: QuotaEntity, changes: Mapping[QuotaKind, float | None]
    ) -> QuotaLimits:
        """Set the limits in `changes`, remove those that are None, and return what is left."""
        key = _key(entity)

        async def attempt(_: bool) -> tuple[Sequence[Op], QuotaLimits]:
            # If a reply is lost, the same is decided again, on what is stored then.
            item = await self._metadata.get(key)
            old = QuotaLimits() if item is None else _decode(item.value)[1]
            new = msgspec.structs.replace(
                old, **{str(kind): rate for kind, rate in changes.items()}
            )
            if new == old:
                return [], old
            if not new.is_empty:
                version = None if item is None else item.version
                return [Put(key, _encode(entity, new), version)], new
            assert item is not None, "it had limits"
            return [Delete(key, item.version)], new

        return await change_security(self._metadata, self._world, "the quota", attempt)
