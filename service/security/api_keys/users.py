"""Users with passwords, for the Kafka listener: one item for each, with its SCRAM verifiers."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from service.security.api_keys.scram import (
    ITERATIONS_MIN,
    ScramMechanism,
    ScramVerifier,
    make_verifiers,
)
from service.security.versions import change_security
from service.world.clock import World
from storage import keys
from storage.cas import Again
from storage.errors import InvalidRequest, UnknownCredential
from storage.formats import frames
from storage.stores.metadata import Delete, MetadataStore, Op, Put, Versioned, pages

NAME_CHARS_MAX: Final = 249

_MAGIC: Final = b"RUS1"
_NAME: Final = re.compile(rf"[^\x00-\x20\x7f/;,]{{1,{NAME_CHARS_MAX}}}")


class ScramUser(msgspec.Struct, array_like=True, frozen=True):
    """A user as it is stored; its principal is `User:` and the name."""

    name: str
    verifiers: tuple[ScramVerifier, ...]

    def verifier(self, mechanism: ScramMechanism) -> ScramVerifier | None:
        return next((each for each in self.verifiers if each.mechanism is mechanism), None)


_DECODER: Final = msgspec.msgpack.Decoder(ScramUser)


def encode(user: ScramUser) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(user))


def decode(value: bytes) -> ScramUser:
    """Return a user as it was stored, or raise `Corrupt`."""
    return frames.unpack(_MAGIC, value, _DECODER, "a user")


def parse_user_name(text: str) -> str:
    """Return `text` if it can name a user, or raise `InvalidRequest`."""
    if _NAME.fullmatch(text) is None:
        raise InvalidRequest(
            f"user: {text[:300]!r} is not a name: use 1 to {NAME_CHARS_MAX} characters, without"
            " blanks, slashes, commas and semicolons"
        )
    return text


class Users:
    """The users of a deployment, as they are now."""

    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world

    async def set_password(
        self, name: str, password: str, iterations: int = ITERATIONS_MIN
    ) -> ScramUser:
        """Give the user this password, and make the user if there is none of this name."""
        made = await asyncio.to_thread(
            make_verifiers, password, self._world.random_bytes, iterations
        )
        return await self.set(name, made)

    async def set(self, name: str, verifiers: Sequence[ScramVerifier]) -> ScramUser:
        """Put verifiers in place of those for the same mechanisms; others stay."""
        parse_user_name(name)
        new = {each.mechanism: each for each in verifiers}

        async def attempt(_: bool) -> tuple[Sequence[Op], ScramUser]:
            item = await self._metadata.get(keys.user(name))
            old = () if item is None else decode(item.value).verifiers
            # In one order, so that a change whose reply was lost is recognised.
            all_of_them = {each.mechanism: each for each in old} | new
            user = ScramUser(name, tuple(all_of_them[m] for m in sorted(all_of_them)))
            if item is not None and user.verifiers == old:
                return [], user
            version = None if item is None else item.version
            return [Put(keys.user(name), encode(user), version)], user

        return await change_security(self._metadata, self._world, f"user {name}", attempt)

    async def delete(self, name: str, mechanism: ScramMechanism | None = None) -> None:
        """Delete the user, or its verifier for one mechanism. Raises `UnknownCredential`."""

        async def attempt(is_in_doubt: bool) -> tuple[Sequence[Op], None] | Again:
            try:
                item, user = await self._stored(name, mechanism)
            except UnknownCredential:
                if is_in_doubt:
                    return [], None
                raise
            left = tuple(v for v in user.verifiers if mechanism not in (None, v.mechanism))
            if not left:
                return [Delete(keys.user(name), item.version)], None
            value = encode(ScramUser(name, left))
            return [Put(keys.user(name), value, item.version)], None

        await change_security(self._metadata, self._world, f"user {name}", attempt)

    async def find(self, name: str) -> ScramUser | None:
        """Return the user if there is one."""
        if _NAME.fullmatch(name) is None:
            return None
        item = await self._metadata.get(keys.user(name))
        return None if item is None else decode(item.value)

    async def all(self) -> list[ScramUser]:
        """Return all users, by name."""
        found = [
            decode(item.value)
            async for page in pages(self._metadata, keys.USERS)
            for _, item in page
        ]
        return sorted(found, key=lambda user: user.name)

    async def _stored(
        self, name: str, mechanism: ScramMechanism | None
    ) -> tuple[Versioned, ScramUser]:
        item = await self._metadata.get(keys.user(name)) if _NAME.fullmatch(name) else None
        user = None if item is None else decode(item.value)
        if item is None or user is None or (mechanism and user.verifier(mechanism) is None):
            raise UnknownCredential(f"there is no user {name[:100]!r} with such a password")
        return item, user
