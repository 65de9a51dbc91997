"""The keys that an identity provider publishes (RFC 7517), as far as they may verify a token. Pure.

A key that is meant for something else, weak or private is left out as if it were not there, since
providers publish keys of many kinds. A key is used for the algorithms of its own type only: that a
public key is no secret for an HMAC follows from there being no HMAC among the algorithms.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from storage.errors import Unavailable

KEYS_MAX: Final = 100
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
RSA_EXPONENT_BYTES_MAX: Final = 4

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
ALGORITHMS: Final = _RSA.union(*_CURVES.values())
"""Every algorithm that can be accepted: signatures only, and no secret that two sides share."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of the provider."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any

    def has_signed(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        from joserfc.jws import JWSRegistry

        try:
            # Not by `deserialize_compact`, which warns of EdDSA: the name in use for Ed25519.
            return JWSRegistry.algorithms[algorithm].verify(signed, signature, self.key)
        except ValueError:
            return False  # A signature of a length that the key cannot make.


def read_key_set(document: bytes) -> tuple[SigningKey, ...]:
    """Return the keys of a JWKS that may verify tokens, or raise `Unavailable` if it is none."""
    try:
        found = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    published = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(published, list):
        raise Unavailable("the provider's keys are not a JSON object with a list of keys")
    if len(published) > KEYS_MAX:
        raise Unavailable(f"the provider publishes {len(published)} keys, at most {KEYS_MAX}")
    keys = (_usable(each) for each in published)
    return tuple(key for key in keys if key is not None)


def choose(keys: Sequence[SigningKey], key_id: str | None, algorithm: str) -> list[SigningKey]:
    """Return the keys that may have signed a token; without a name in it, the only one if any."""
    fitting = [key for key in keys if algorithm in key.algorithms]
    if key_id is None:
        return fitting if len(fitting) == 1 else []
    return [key for key in fitting if key.key_id == key_id]


def _usable(published: object) -> SigningKey | None:
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    if not isinstance(published, dict) or not _is_for_signatures(published):
        return None
    algorithms = _algorithms(published)
    key_id = published.get("kid")
    if not algorithms or not (key_id is None or isinstance(key_id, str)):
        return None
    # Only what makes the key: use and key_ops are checked, and a chain of certificates is not used.
    parts = {
        name: published[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in published
    }
    try:
        imported = JWKRegistry.import_key(parts)
        _ = imported.raw_value  # A point that is not on its curve shows here.
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return SigningKey(key_id, algorithms, imported)


def _is_for_signatures(published: Mapping[str, Any]) -> bool:
    operations = published.get("key_ops", ["verify"])
    return (
        published.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        # A private key that was published is nobody's any more.
        and not published.keys() & {"d", "p", "q", "k"}
    )


def _algorithms(published: Mapping[str, Any]) -> frozenset[str]:
    kind, curve = published.get("kty"), published.get("crv")
    if kind == "RSA":
        found = _RSA if _is_strong(published) else frozenset()
    else:
        found = _CURVES.get((str(kind), str(curve)), frozenset())
    only = published.get("alg")
    # Ed25519 is the name of EdDSA on this curve since RFC 9864.
    only = "EdDSA" if only == "Ed25519" else only
    return found if only is None else found & {only} if isinstance(only, str) else frozenset()


def _is_strong(published: Mapping[str, Any]) -> bool:
    modulus, exponent = _number(published.get("n")), _number(published.get("e"))
    return (
        RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX
        and 3 <= exponent < 1 << (8 * RSA_EXPONENT_BYTES_MAX)
        and exponent % 2 == 1
    )


def _number(text: object) -> int:
    if not isinstance(text, str) or len(text) > 2 * RSA_BITS_MAX // 8:
        return 0
    try:
        return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        return 0
