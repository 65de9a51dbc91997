"""SCRAM verifiers (RFC 5802, RFC 7677): what a server keeps to recognise a password without it.

    salted    = PBKDF2(password, salt, iterations)
    stored    = H(HMAC(salted, "Client Key"))        recognises who knows the password
    server    = HMAC(salted, "Server Key")           shows the client that we know it, too

Nobody can log in with a verifier, but whoever reads it may guess passwords at the price of
`iterations` each. Passwords are taken as UTF-8 without further preparation, as Kafka does.
"""

import hashlib
import hmac
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from storage.errors import InvalidRequest

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
SALT_BYTES: Final = 24
PASSWORD_BYTES_MAX: Final = 1024


class ScramMechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The name of its hash."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"


class ScramVerifier(msgspec.Struct, array_like=True, frozen=True):
    """A verifier as it is stored."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def has_password(self, password: str) -> bool:
        """Whether `password` is the one; takes milliseconds."""
        given = make_verifier(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(given.stored_key, self.stored_key)

    def has_proof(self, proof: bytes, auth_message: bytes) -> bool:
        """Whether the client's proof shows that it knows the password."""
        return hmac.compare_digest(self.proven_key(proof, auth_message), self.stored_key)

    def proven_key(self, proof: bytes, auth_message: bytes) -> bytes:
        """Return the stored key of the password that a proof was made with; empty if it is none.

        For this password it is always the same, and nobody else can make it.
        """
        digest = self.mechanism.digest
        signature = hmac.digest(self.stored_key, auth_message, digest)
        if len(proof) != len(signature):
            return b""
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hashlib.new(digest, client_key).digest()

    def signature(self, auth_message: bytes) -> bytes:
        """Return what shows the client that it speaks to who knows its password."""
        return hmac.digest(self.server_key, auth_message, self.mechanism.digest)


def make_verifier(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramVerifier:
    """Return the verifier of a password, or raise `InvalidRequest`. Takes milliseconds."""
    text = password.encode(errors="surrogatepass")
    if not 0 < len(text) <= PASSWORD_BYTES_MAX:
        raise InvalidRequest(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes")
    _check(salt, iterations)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, text, salt, iterations)
    return of_salted(mechanism, salted, salt, iterations)


def of_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramVerifier:
    """Return the verifier of a password that a client has salted, or raise `InvalidRequest`."""
    _check(salt, iterations)
    digest = mechanism.digest
    if len(salted) != hashlib.new(digest).digest_size:
        raise InvalidRequest(f"a salted password for {mechanism} does not have {len(salted)} bytes")
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    return ScramVerifier(mechanism, salt, iterations, stored_key, server_key)


def make_verifiers(
    password: str, random_bytes: Callable[[int], bytes], iterations: int = ITERATIONS_MIN
) -> tuple[ScramVerifier, ...]:
    """Return verifiers for every mechanism, or raise `InvalidRequest`."""
    return tuple(
        make_verifier(each, password, random_bytes(SALT_BYTES), iterations)
        for each in ScramMechanism
    )


def decoy(mechanism: ScramMechanism, name: str, seed: bytes) -> ScramVerifier:
    """Return a verifier for a user that does not exist: always the same, and of no password.

    With it, somebody who tries names cannot tell which of them exist.
    """
    made = hmac.digest(seed, f"{mechanism} {name}".encode(errors="surrogatepass"), "sha512")
    size = hashlib.new(mechanism.digest).digest_size
    return ScramVerifier(mechanism, made[:SALT_BYTES], ITERATIONS_MIN, bytes(size), made[:size])


def _check(salt: bytes, iterations: int) -> None:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequest(
            f"iterations: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {iterations}"
        )
    if not salt:
        raise InvalidRequest("salt: must not be empty")
