"""API keys: made, shown once, found, rotated, revoked.

A key is an item with the SHA-256 of its secret. Rotation gives it a new secret and lets the old one
live for a while. A key that another key made for itself ends with it.
"""

import asyncio
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from service.security.api_keys.scopes import KeyScope
from service.security.api_keys.scram import ScramMechanism, ScramVerifier, make_verifiers
from service.security.api_keys.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    digest_of,
    is_key_id,
    key_id,
    key_text,
    secret,
)
from service.security.versions import change_security
from service.world.clock import World
from storage import keys
from storage.cas import Again
from storage.errors import InvalidRequest, UnknownCredential
from storage.formats import frames
from storage.stores.metadata import Delete, MetadataStore, Op, Put, Versioned, pages

PARENTS_MAX: Final = 8
"""Maximum length of a chain of keys, each made by the one before."""

OLD_SECRETS_MAX: Final = 4
"""Maximum number of secrets before the current one that are accepted for a while."""

_MAGIC: Final = b"RKY1"


class OldSecret(msgspec.Struct, array_like=True, frozen=True):
    """A secret before the current one."""

    digest: bytes
    until_ms: int
    scram: tuple[ScramVerifier, ...] = ()


class ApiKey(msgspec.Struct, array_like=True, frozen=True):
    """A key as it is stored."""

    key_id: str
    principal: str
    digest: bytes
    created_ms: int
    expires_ms: int | None = None
    scope: KeyScope | None = None
    name_prefix: str = ""
    is_super: bool = False
    parent_id: str | None = None
    """The key that made this one for itself; this one is valid as long as that one."""
    created_by: str = ""
    """A principal, or the store's owner."""
    old_secrets: tuple[OldSecret, ...] = ()
    """The newest first."""
    description: str = ""
    scram: tuple[ScramVerifier, ...] = ()
    """Of the secret as a password, for doors that speak SCRAM; only if that was asked for."""

    def verifiers(self, mechanism: ScramMechanism, now_ms: int) -> list[ScramVerifier]:
        """Return the verifiers that are accepted now, the newest first."""
        old = [each for o in self.old_secrets if now_ms < o.until_ms for each in o.scram]
        return [each for each in (*self.scram, *old) if each.mechanism is mechanism]

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms

    @property
    def old_until_ms(self) -> int | None:
        """Until when any secret but the current one is accepted."""
        return max((old.until_ms for old in self.old_secrets), default=None)

    def accepts_until(self, given: str) -> int | None:
        """Return until when the secret `given` is accepted; 0 if it is none of this key.

        None: as long as the key itself.
        """
        digest = digest_of(given)
        if hmac.compare_digest(digest, self.digest):
            return None
        found = [o.until_ms for o in self.old_secrets if hmac.compare_digest(digest, o.digest)]
        return max(found, default=0)


_DECODER: Final = msgspec.msgpack.Decoder(ApiKey)


def encode(key: ApiKey) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(key))


def decode(value: bytes) -> ApiKey:
    """Return a key as it was stored, or raise `Corrupt`."""
    return frames.unpack(_MAGIC, value, _DECODER, "an API key")


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a new key is to be."""

    principal: str
    expires_ms: int | None = None
    scope: KeyScope | None = None
    name_prefix: str = ""
    is_super: bool = False
    parent_id: str | None = None
    created_by: str = ""
    description: str = ""
    scram: bool = False
    """Whether the key is accepted as name and password by SCRAM, too."""


class ApiKeys:
    """The keys of a deployment, as they are now; `SecurityView` remembers them for a moment."""

    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world

    async def create(self, new: NewKey) -> tuple[ApiKey, str]:
        """Return the new key and its text, which is not stored."""
        now_ms = self._world.now_ms()
        if new.expires_ms is not None and new.expires_ms <= now_ms:
            raise InvalidRequest(f"expires_ms: {new.expires_ms} is in the past (now: {now_ms})")
        await self._check_parents(new.parent_id)
        chosen = secret(self._world.random_bytes(SECRET_BYTES))
        made = ApiKey(
            key_id=key_id(self._world.random_bytes(ID_BYTES)),
            principal=new.principal,
            digest=digest_of(chosen),
            created_ms=now_ms,
            expires_ms=new.expires_ms,
            scope=new.scope,
            name_prefix=new.name_prefix,
            is_super=new.is_super,
            parent_id=new.parent_id,
            created_by=new.created_by,
            description=new.description,
            scram=await self._verifiers(chosen) if new.scram else (),
        )

        async def attempt(_: bool) -> tuple[Sequence[Op], ApiKey]:
            # Found only if an earlier attempt was applied: identifiers are random.
            if await self._metadata.get(keys.api_key(made.key_id)) is not None:
                return [], made
            return [Put(keys.api_key(made.key_id), encode(made), None)], made

        await change_security(self._metadata, self._world, "the API key", attempt)
        return made, key_text(made.key_id, chosen)

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key if there is one, valid or not."""
        if not is_key_id(key_id):
            return None
        item = await self._metadata.get(keys.api_key(key_id))
        return None if item is None else decode(item.value)

    async def existing(self, key_id: str) -> ApiKey:
        """Return the key, or raise `UnknownCredential`."""
        _, key = await self._stored(key_id)
        return key

    async def all(self) -> list[ApiKey]:
        """Return all keys, the oldest first."""
        found = [
            decode(item.value)
            async for page in pages(self._metadata, keys.API_KEYS)
            for _, item in page
        ]
        return sorted(found, key=lambda key: (key.created_ms, key.key_id))

    async def rotate(self, key_id: str, overlap_ms: int) -> tuple[ApiKey, str]:
        """Give the key a new secret; older ones are accepted for `overlap_ms` more at most."""
        now_ms = self._world.now_ms()
        chosen = secret(self._world.random_bytes(SECRET_BYTES))
        digest = digest_of(chosen)
        has_scram = bool((await self.existing(key_id)).scram)
        verifiers = await self._verifiers(chosen) if has_scram else ()

        async def attempt(_: bool) -> tuple[Sequence[Op], ApiKey]:
            item, key = await self._stored(key_id)
            if key.digest == digest:
                return [], key
            # Also those before: a rotation is repeated if its answer is lost, and then the secret
            # in between was never seen.
            until_ms = now_ms + overlap_ms
            old = (OldSecret(key.digest, until_ms, key.scram), *key.old_secrets)
            left = [replace(each, until_ms=min(each.until_ms, until_ms)) for each in old]
            new = replace(
                key,
                digest=digest,
                old_secrets=tuple(o for o in left if o.until_ms > now_ms)[:OLD_SECRETS_MAX],
                scram=verifiers,
            )
            return [Put(keys.api_key(key_id), encode(new), item.version)], new

        key = await change_security(self._metadata, self._world, f"API key {key_id}", attempt)
        return key, key_text(key_id, chosen)

    async def revoke(self, key_id: str) -> ApiKey:
        """Delete the key. Gateways stop accepting it, and those it has made, within seconds."""
        revoked: list[ApiKey] = []

        async def attempt(is_in_doubt: bool) -> tuple[Sequence[Op], ApiKey] | Again:
            try:
                item, key = await self._stored(key_id)
            except UnknownCredential:
                if is_in_doubt and revoked:
                    return [], revoked[0]
                raise
            revoked[:] = [key]
            return [Delete(keys.api_key(key_id), item.version)], key

        return await change_security(self._metadata, self._world, f"API key {key_id}", attempt)

    async def _verifiers(self, chosen: str) -> tuple[ScramVerifier, ...]:
        return await asyncio.to_thread(make_verifiers, chosen, self._world.random_bytes)

    async def _check_parents(self, parent_id: str | None) -> None:
        """Raise `InvalidRequest` if the chain of keys that ends with `parent_id` is too long."""
        for _ in range(PARENTS_MAX):
            parent = None if parent_id is None else await self.find(parent_id)
            if parent is None:
                return
            parent_id = parent.parent_id
        raise InvalidRequest(
            f"at most {PARENTS_MAX} keys in a chain, each made by the one before; make the key with"
            " an earlier one of them"
        )

    async def _stored(self, key_id: str) -> tuple[Versioned, ApiKey]:
        item = await self._metadata.get(keys.api_key(key_id)) if is_key_id(key_id) else None
        if item is None:
            raise UnknownCredential(
                f"there is no API key {key_id[:100]!r}; GET /v1/keys lists them"
            )
        return item, decode(item.value)
