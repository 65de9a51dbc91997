"""Clients that speak another protocol than the port that they have reached.

To them a wrong port, or TLS on one side only, looks like a network that closes connections. So the
log names the mistake, once a minute for each kind of it and address, and who speaks HTTP is told.
"""

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import json

log = logging.getLogger("riacho.connections")

LOGGED_EVERY_S: Final = 60.0
KEPT_MAX: Final = 1_000
"""Maximum number of mistakes that are remembered, so that they are not logged again."""

HEAD_BYTES: Final = 8
"""How many bytes tell what a client speaks."""

_METHODS: Final = (
    b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ",
)  # fmt: skip
_TLS_HANDSHAKE: Final = b"\x16\x03"
_FIRST_KEYS: Final = frozenset({3, 17, 18})
"""Of the requests with which Kafka's clients begin: Metadata, SaslHandshake, ApiVersions."""
_FIRST_LENGTH_MAX: Final = 64 * 1024
_FIRST_VERSION_MAX: Final = 50


class Spoken(StrEnum):
    HTTP = "HTTP"
    KAFKA = "Kafka's protocol"
    TLS = "TLS"


def spoken(head: bytes) -> Spoken | None:
    """Return what a client speaks whose first bytes are `head`; None: none of these."""
    if head.startswith(_METHODS):
        return Spoken.HTTP
    if head.startswith(_TLS_HANDSHAKE):
        return Spoken.TLS
    if len(head) < HEAD_BYTES:
        return None
    length, key = int.from_bytes(head[:4]), int.from_bytes(head[4:6])
    version = int.from_bytes(head[6:8])
    is_kafka = (
        HEAD_BYTES <= length <= _FIRST_LENGTH_MAX
        and key in _FIRST_KEYS
        and version <= _FIRST_VERSION_MAX
    )
    return Spoken.KAFKA if is_kafka else None


class Mistakes:
    """Logs mistakes of clients, each at a limited rate."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._logged_s: dict[tuple[str, str], float] = {}

    @property
    def kept_count(self) -> int:
        """How many mistakes are remembered."""
        return len(self._logged_s)

    def note(self, host: str, mistake: str) -> None:
        """Log that a client at `host`, empty where that is not known, has made a mistake."""
        now_s = self._monotonic_s()
        last_s = self._logged_s.get((host, mistake))
        if last_s is not None and now_s - last_s < LOGGED_EVERY_S:
            return
        if len(self._logged_s) >= KEPT_MAX:
            self._logged_s.clear()
        self._logged_s[host, mistake] = now_s
        log.warning("%s %s", f"a client at {host}" if host else "a client", mistake)


MISTAKES: Final = Mistakes()
"""Of this process: whoever accepts connections for it is made by a server, not by us."""


def http_answer(detail: str) -> bytes:
    """Return the answer to any request of HTTP at a port that does not serve it."""
    problem = {
        "type": "/problems/invalid-request",
        "title": "Bad Request",
        "status": 400,
        "code": "INVALID_REQUEST",
        "detail": detail,
        "retryable": False,
        "may_have_applied": False,
    }
    body = json.encode(problem)
    head = (
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
