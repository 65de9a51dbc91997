"""From a bearer token to a principal.

A signature costs more than the rest of a small request, so verdicts are remembered by the token's
SHA-256: good ones until the token expires, at most `REMEMBERED_S`; bad ones for `BAD_REMEMBERED_S`.
Both are bounded. That a key is unknown, or the provider out of reach, is not remembered: it may be
otherwise in a moment, and `key_source` limits what asking costs.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from service.security.oidc.claims import ClaimRules, VerifiedToken, check_issuer, verified
from service.security.oidc.fetching import DocumentFetcher
from service.security.oidc.key_set import ALGORITHMS
from service.security.oidc.key_source import KeySource
from service.security.oidc.parsing import TOKEN_BYTES_MAX, ParsedToken, parse_token
from service.settings import Settings
from service.world.clock import World
from storage.errors import InvalidConfig, Unauthenticated

REMEMBERED_MAX: Final = 4096
REMEMBERED_S: Final = 60.0
BAD_REMEMBERED_S: Final = 10.0

T = TypeVar("T")


class JwtVerifier:
    """Verifies tokens of one issuer."""

    def __init__(
        self, rules: ClaimRules, algorithms: frozenset[str], keys: KeySource, world: World
    ) -> None:
        self._rules = rules
        self._algorithms = algorithms
        self._keys = keys
        self._world = world
        self._good = _Remembered[VerifiedToken](REMEMBERED_MAX)
        self._bad = _Remembered[str](REMEMBERED_MAX)

    async def verify(self, token: str) -> VerifiedToken:
        """Return whose token it is.

        Raises `Unauthenticated` if it does not hold, and `Unavailable` if nobody can tell, because
        the provider's keys cannot be read.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise Unauthenticated(f"the token has more than {TOKEN_BYTES_MAX} bytes")
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        now_ms = self._world.now_ms()
        found = self._good.get(digest, now_ms)
        if found is not None:
            return found
        why = self._bad.get(digest, now_ms)
        if why is not None:
            raise Unauthenticated(why)
        try:
            # Before any key is asked for: most bad tokens are of somebody else.
            parsed = parse_token(token, self._algorithms)
            check_issuer(parsed.claims, self._rules)
        except Unauthenticated as error:
            self._bad.put(digest, str(error), now_ms + int(BAD_REMEMBERED_S * 1000))
            raise
        return await self._judged(parsed, digest)

    async def _judged(self, parsed: ParsedToken, digest: bytes) -> VerifiedToken:
        candidates = await self._keys.candidates(parsed.key_id, parsed.algorithm)
        if not candidates:
            raise Unauthenticated(
                "the identity provider publishes no key of this name (kid) for this algorithm"
            )
        now_ms = self._world.now_ms()
        try:
            if not any(
                key.has_signed(parsed.algorithm, parsed.signed, parsed.signature)
                for key in candidates
            ):
                raise Unauthenticated("the signature of the token does not hold")
            found = verified(parsed.claims, self._rules, now_ms)
        except Unauthenticated as error:
            self._bad.put(digest, str(error), now_ms + int(BAD_REMEMBERED_S * 1000))
            raise
        until_ms = min(found.expires_ms, now_ms + int(REMEMBERED_S * 1000))
        self._good.put(digest, found, until_ms)
        return found


def verifier_of(settings: Settings, world: World) -> JwtVerifier | None:
    """Return what verifies tokens as the settings say, or None if they name no issuer.

    Raises `InvalidConfig`.
    """
    if not settings.jwt_issuer:
        return None
    algorithms = frozenset(a.strip() for a in settings.jwt_algorithms.split(",") if a.strip())
    unknown = sorted(algorithms - ALGORITHMS)
    if unknown or not algorithms:
        raise InvalidConfig(
            f"RIACHO_JWT_ALGORITHMS: {', '.join(unknown) or 'nothing'} cannot be accepted; choose"
            f" from {', '.join(sorted(ALGORITHMS))}"
        )
    fetcher = DocumentFetcher(settings.jwt_ca_file)
    keys = KeySource(settings.jwt_issuer, settings.jwt_jwks, fetcher, world)
    return JwtVerifier(ClaimRules.of(settings), algorithms, keys, world)


@dataclass(slots=True)
class _Verdict(Generic[T]):
    value: T
    until_ms: int


class _Remembered(Generic[T]):
    """Values by digest, each until its time, at most `count_max`: the oldest goes first."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._verdicts: dict[bytes, _Verdict[T]] = {}

    def get(self, digest: bytes, now_ms: int) -> T | None:
        found = self._verdicts.get(digest)
        if found is None:
            return None
        if now_ms >= found.until_ms:
            del self._verdicts[digest]
            return None
        return found.value

    def put(self, digest: bytes, value: T, until_ms: int) -> None:
        self._verdicts.pop(digest, None)
        self._verdicts[digest] = _Verdict(value, until_ms)
        if len(self._verdicts) > self._count_max:
            del self._verdicts[next(iter(self._verdicts))]
