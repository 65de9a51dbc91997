"""Key-encryption keys: what a data key is wrapped with before it is stored.

    file:<path>       32 bytes in a file, raw or as hex or base64, below a directory that the
                      operator names: whoever creates a topic cannot make a gateway read others
    aws-kms:<arn>     a key that never leaves AWS KMS (storage/crypto/kms.py)

A wrapped key of a file is in the envelope of `storage/crypto/envelope.py`: nonce, ciphertext, tag,
bound to the text "riacho data key" and the topic. KMS binds it to the topic by its encryption
context.
"""

import asyncio
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from storage.crypto.envelope import KEY_BYTES, NONCE_BYTES, aead, opened
from storage.errors import Corrupt, EncryptionKeyUnavailable
from storage.topics.config import AWS_KMS, FILE

FILE_BYTES_MAX: Final = 256
"""A larger file is no key, and is not read to its end."""

_BOUND: Final = b"riacho data key"


class KeyWrapper(Protocol):
    """A key-encryption key."""

    async def wrap(self, secret: bytes, topic_id: bytes) -> bytes:
        """Return a data key of the topic as it may be stored."""

    async def unwrap(self, wrapped: bytes, topic_id: bytes) -> bytes:
        """Return the data key that `wrap` wrapped for the same topic.

        Both raise `EncryptionKeyUnavailable` if the key is gone or refused, and
        `StoreUnavailable` if it cannot be reached now.
        """


class KeyWrappers:
    """All key-encryption keys that a process may use."""

    def __init__(self, files: Path | None, random_bytes: Callable[[int], bytes]) -> None:
        """Let `file:` name files below the directory `files`; None: no files at all."""
        self._files = files
        self._random_bytes = random_bytes
        self._kms: dict[str, KeyWrapper] = {}

    def named(self, kek: str) -> KeyWrapper:
        """Return the key of this name; nothing is read or sent before its first use."""
        if kek.startswith(FILE):
            return KeyFile(kek.removeprefix(FILE), self._files, self._random_bytes)
        arn = kek.removeprefix(AWS_KMS)
        found = self._kms.get(arn)
        if found is None:
            # Imported here: it brings an SDK of AWS.
            from storage.crypto.kms import KmsKey

            found = self._kms[arn] = KmsKey(arn, arn.split(":")[3])
        return found


class KeyFile:
    """A `KeyWrapper` whose key is in a file, read for each use: they are rare."""

    def __init__(self, path: str, files: Path | None, random_bytes: Callable[[int], bytes]) -> None:
        self._path = path
        self._files = files
        self._random_bytes = random_bytes

    async def wrap(self, secret: bytes, topic_id: bytes) -> bytes:
        cipher = aead(await asyncio.to_thread(self._read))
        nonce = self._random_bytes(NONCE_BYTES)
        return nonce + cipher.encrypt(nonce, secret, _BOUND + topic_id)

    async def unwrap(self, wrapped: bytes, topic_id: bytes) -> bytes:
        cipher = aead(await asyncio.to_thread(self._read))
        try:
            return opened(cipher, wrapped, _BOUND + topic_id)
        except Corrupt:
            raise EncryptionKeyUnavailable(
                f"{FILE}{self._path} is not the key that wrapped the data key of this topic"
            ) from None

    def _read(self) -> bytes:
        if self._files is None:
            raise EncryptionKeyUnavailable(
                "this gateway may use no key files: set RIACHO_KEK_FILES to a directory of keys"
            )
        root = self._files.expanduser().resolve()
        path = (root / self._path).resolve()
        # Before anything is said of the file: a caller must not learn which files exist.
        if not path.is_relative_to(root) or path == root:
            raise EncryptionKeyUnavailable(
                f"{FILE}{self._path} is not below the directory that RIACHO_KEK_FILES names"
            )
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise EncryptionKeyUnavailable(f"{FILE}{self._path}: {reason}") from None
        key = _key_in(text)
        if key is None:
            raise EncryptionKeyUnavailable(
                f"{FILE}{self._path} does not hold {KEY_BYTES} bytes, raw or as hex or base64"
            )
        return key


def _key_in(text: bytes) -> bytes | None:
    if len(text) == KEY_BYTES:
        return text
    stripped = text.strip()
    for decode in (binascii.unhexlify, binascii.a2b_base64):
        try:
            key = decode(stripped)
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    return None
