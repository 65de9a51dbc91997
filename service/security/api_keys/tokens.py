"""The text of an API key. Pure.

    rk_<id>_<secret>_<checksum>

Letters and digits only, so a double click selects all of it. The beginning and the checksum let
scanners of source code recognise a leaked key, and a gateway refuse a mistyped one without a read.
A secret has 256 random bits, so a fast hash is enough to store it.
"""

import hashlib
import zlib
from typing import Final, NamedTuple

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BEGINNING: Final = "rk_"
ID_CHARS: Final = 16
SECRET_CHARS: Final = 43
CHECKSUM_CHARS: Final = 6

ID_BYTES: Final = 11
SECRET_BYTES: Final = 32


class ParsedKey(NamedTuple):
    key_id: str
    secret: str


def encoded(data: bytes, chars: int) -> str:
    """Return `data` as a number in base 62, with this many digits."""
    number = int.from_bytes(data)
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def key_id(random: bytes) -> str:
    assert len(random) == ID_BYTES, random
    return encoded(random, ID_CHARS)


def secret(random: bytes) -> str:
    assert len(random) == SECRET_BYTES, random
    return encoded(random, SECRET_CHARS)


def key_text(key_id: str, secret: str) -> str:
    return f"{BEGINNING}{key_id}_{secret}_{_checksum(key_id, secret)}"


def parse_api_key(text: str) -> ParsedKey | None:
    """Return the parts of a key; None if it is none, or mistyped."""
    if len(text) != len(BEGINNING) + ID_CHARS + SECRET_CHARS + CHECKSUM_CHARS + 2:
        return None
    if not text.startswith(BEGINNING):
        return None
    parts = text.removeprefix(BEGINNING).split("_")
    if len(parts) != 3 or not is_key_id(parts[0]) or _checksum(parts[0], parts[1]) != parts[2]:
        return None
    return ParsedKey(parts[0], parts[1])


def is_key_id(text: str) -> bool:
    return len(text) == ID_CHARS and text.isascii() and text.isalnum()


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _checksum(key_id: str, secret: str) -> str:
    return encoded(zlib.crc32(f"{key_id}_{secret}".encode()).to_bytes(4), CHECKSUM_CHARS)
