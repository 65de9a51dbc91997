"""Where the keys of a provider come from, and when they are read again.

    RIACHO_JWT_JWKS=https://…   that document
    RIACHO_JWT_JWKS=/a/file     that file: for a gateway that reaches no provider
    neither                     `jwks_uri` of <issuer>/.well-known/openid-configuration

- Keys are used for `FRESH_S`, and then read again by the next token. If that fails, the last good
  ones are used for up to `KEPT_S_MAX`, and the next attempt is made after `PAUSE_S`.
- A token whose key is unknown makes us read them again, since providers rotate keys; at most once
  in `PAUSE_S`, since anybody can make up a name.
- One attempt at a time: all who need it wait for the same.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import msgspec

from service.security.oidc.fetching import (
    DOCUMENT_BYTES_MAX,
    DocumentFetcher,
    checked_url,
    is_loopback,
    is_same_place,
    shown,
)
from service.security.oidc.key_set import SigningKey, choose, read_key_set
from service.world.clock import World
from storage.errors import InvalidConfig, Unavailable
from storage.tasks import SingleFlight

log = logging.getLogger("riacho.security.jwt")

FRESH_S: Final = 600.0
PAUSE_S: Final = 60.0
FIRST_PAUSE_S: Final = 5.0
"""Between attempts while there are no keys at all."""

KEPT_S_MAX: Final = 24 * 3600.0
"""Maximum age of keys that cannot be read again: a provider may be down for so long."""

WELL_KNOWN: Final = "/.well-known/openid-configuration"


class KeySource:
    """The keys of one issuer, read when a token needs them."""

    def __init__(self, issuer: str, jwks: str, fetcher: DocumentFetcher, world: World) -> None:
        """Raise `InvalidConfig` for addresses that would not be called."""
        self._issuer = checked_url(issuer, "RIACHO_JWT_ISSUER")
        self._named_issuer = issuer
        self._file = Path(jwks) if jwks and "://" not in jwks else None
        self._url = checked_url(jwks, "RIACHO_JWT_JWKS") if jwks and not self._file else None
        self._fetcher = fetcher
        self._world = world
        self._flight = SingleFlight[str, None]()
        self._keys: tuple[SigningKey, ...] | None = None
        self._read_s = 0.0
        self._tried_s = -PAUSE_S

    async def candidates(self, key_id: str | None, algorithm: str) -> list[SigningKey]:
        """Return the keys that may have signed a token; none if there is no such key.

        Raises `Unavailable` if there are no keys at all, or only too old ones.
        """
        if self._keys is None or self._age_s() > FRESH_S:
            await self._read_again(FIRST_PAUSE_S if self._keys is None else PAUSE_S)
        if self._keys is None or self._age_s() > KEPT_S_MAX:
            # Why is for the log: whoever asks has not shown who it is.
            raise Unavailable("the keys of the identity provider cannot be read; try again later")
        found = choose(self._keys, key_id, algorithm)
        if not found and await self._read_again(PAUSE_S):
            found = choose(self._keys, key_id, algorithm)
        return found

    def _age_s(self) -> float:
        return self._world.monotonic_s() - self._read_s

    async def _read_again(self, pause_s: float) -> bool:
        """Read the keys, or wait for who reads them; return whether anybody did.

        Does nothing within `pause_s` of the last attempt.
        """
        if self._flight.is_busy("keys"):
            await self._flight.do("keys", self._read)
            return True
        if self._world.monotonic_s() - self._tried_s < pause_s:
            return False
        self._tried_s = self._world.monotonic_s()
        await self._flight.do("keys", self._read)
        return True

    async def _read(self) -> None:
        """Replace the keys, or keep those there are and log why."""
        try:
            keys = await asyncio.to_thread(read_key_set, await self._document())
        except (Unavailable, InvalidConfig) as error:
            log.warning("the keys of the identity provider were not read: %s", error)
            return
        if not keys:
            log.warning("the identity provider publishes no key that can verify tokens")
        self._keys, self._read_s = keys, self._world.monotonic_s()

    async def _document(self) -> bytes:
        if self._file is not None:
            return await asyncio.to_thread(_content, self._file)
        if self._url is not None:
            return await self._fetcher.fetch(self._url, may_be_private=True)
        return await self._discovered()

    async def _discovered(self) -> bytes:
        """Return the keys that the provider's own description leads to."""
        about = checked_url(self._named_issuer.rstrip("/") + WELL_KNOWN, "RIACHO_JWT_ISSUER")
        document = await self._fetcher.fetch(about, may_be_private=True)
        try:
            found = msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("issuer") != self._named_issuer:
            raise Unavailable(f"{shown(about)} does not describe RIACHO_JWT_ISSUER")
        address = found.get("jwks_uri")
        if not isinstance(address, str):
            raise Unavailable(f"{shown(about)} has no jwks_uri")
        url = checked_url(address, "jwks_uri")
        if is_loopback(url) and not is_loopback(self._issuer):
            raise Unavailable("jwks_uri leads to this machine")
        # Where the operator has sent us already, or no further than the issuer itself.
        near = is_same_place(url, self._issuer) or (is_loopback(self._issuer) and is_loopback(url))
        return await self._fetcher.fetch(url, may_be_private=near)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise Unavailable(f"RIACHO_JWT_JWKS: {error}") from error
    if len(found) > DOCUMENT_BYTES_MAX:
        raise Unavailable(f"RIACHO_JWT_JWKS: {path} has more than {DOCUMENT_BYTES_MAX} bytes")
    return found
