"""The parts of a token, before anything in it is believed. Pure.

    token = base64url(header) "." base64url(claims) "." base64url(signature)

The header is written by whoever made the token, so it may choose among our keys by their names and
nothing else: a header that brings a key, or an address of one, is refused, and so is one with
extensions that must be understood (`crit`).
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from storage.errors import Unauthenticated

TOKEN_BYTES_MAX: Final = 8 * 1024
KEY_ID_CHARS_MAX: Final = 256

_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

_REFUSED: Final = ("jwk", "jku", "x5u", "crit", "b64", "zip", "enc")
"""What brings a key along, says where one is, or changes what was signed."""

_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
"""Other types, like that of a logout, are signed with the same keys, but let nobody in."""


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A token whose signature nobody has verified."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def parse_token(token: str, algorithms: frozenset[str]) -> ParsedToken:
    """Return the parts of `token`, or raise `Unauthenticated`."""
    if len(token) > TOKEN_BYTES_MAX:
        raise Unauthenticated(f"the token has {len(token)} bytes, at most {TOKEN_BYTES_MAX}")
    if _FORM.fullmatch(token) is None:
        raise Unauthenticated("the token is not a signed JWT: three parts of base64url with dots")
    header_part, claims_part, signature_part = token.split(".")
    header = _object(header_part, "header")
    for name in _REFUSED:
        if name in header:
            raise Unauthenticated(f"the header of the token has {name!r}, which is refused")
    kind = header.get("typ")
    if kind is not None and str(kind).lower() not in _TYPES:
        raise Unauthenticated("the token is of a type (typ) that is not for access")
    return ParsedToken(
        _algorithm(header, algorithms),
        _key_id(header),
        _object(claims_part, "claims"),
        f"{header_part}.{claims_part}".encode(),
        _bytes(signature_part, "signature"),
    )


def _algorithm(header: Mapping[str, Any], algorithms: frozenset[str]) -> str:
    found = header.get("alg")
    # RFC 9864 gives EdDSA on this curve a name of its own; it is the same signature.
    found = "EdDSA" if found == "Ed25519" else found
    if not isinstance(found, str) or found not in algorithms:
        raise Unauthenticated(
            "the token is signed with an algorithm that is not accepted (RIACHO_JWT_ALGORITHMS)"
        )
    return found


def _key_id(header: Mapping[str, Any]) -> str | None:
    found = header.get("kid")
    if found is not None and (not isinstance(found, str) or len(found) > KEY_ID_CHARS_MAX):
        raise Unauthenticated(f"kid is not a name of at most {KEY_ID_CHARS_MAX} characters")
    return found


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(part, what))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unauthenticated(f"the {what} of the token is not a JSON object")
    return found


def _bytes(part: str, what: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise Unauthenticated(f"the {what} of the token is not base64url") from None
