"""How requests of a connector are made: whom they are from, how long they take, when to retry."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from service.connect.data.errors import RetriableFault
from service.world.clock import World

RETRY_S_MAX: Final = 60.0
"""Between two attempts."""

RETRY_AFTER_S_MAX: Final = 300.0
"""Of what a server may ask for."""

CODES_MAX: Final = 50
SHOWN_CHARS_MAX: Final = 300
"""Of a reply, in errors."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CODES: Final = re.compile(r"(\d{3})(-(\d{3})?)?")


@dataclass(frozen=True, slots=True)
class StatusCodes:
    """`429,500-502,504-`: codes, ranges that include their ends, and ranges without an end."""

    ranges: Sequence[tuple[int, int]]

    def __contains__(self, status: int) -> bool:
        return any(low <= status <= high for low, high in self.ranges)


def status_codes(text: str) -> StatusCodes:
    """Raise `ValueError` in words."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > CODES_MAX:
        raise ValueError(f"has {len(parts)} parts, of at most {CODES_MAX}")
    ranges = []
    for part in parts:
        match = _CODES.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a status code or a range such as 500-504 or 500-")
        low = int(match[1])
        high = low if match[2] is None else int(match[3] or 999)
        if not 400 <= low <= high:
            raise ValueError(f"{part!r} is not a range of codes from 400")
        ranges.append((low, high))
    return StatusCodes(ranges)


def headers_of(text: str, separator: str) -> dict[str, str]:
    """Return the headers of `Name: value|Name: value`. Raise `ValueError` in words."""
    found: dict[str, str] = {}
    for part in text.split(separator) if separator else [text]:
        if not part.strip():
            continue
        name, colon, value = part.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header before a colon")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ValueError(f"{name} is set by the connector itself")
        if not value.isascii() or any(ord(letter) < 32 for letter in value):
            raise ValueError(f"the value of {name} has characters that headers cannot have")
        found[name] = value
    return found


def with_ours(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return both, where those of the user come first."""
    named = {name.lower() for name in theirs}
    return {**{k: v for k, v in ours.items() if k.lower() not in named}, **theirs}


def authorization(kind: str, user: str | None, password: str | None, token: str | None) -> str:
    """Return the value of the header; empty: none."""
    match kind.lower():
        case "basic":
            pair = f"{user or ''}:{password or ''}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        case "bearer":
            return f"Bearer {token or ''}"
        case "static":
            return token or ""
    return ""


def retry_after_s(header: str | None, now_ms: int) -> float | None:
    """Return how long a server asks to wait, bounded; None: it does not say."""
    if header is None:
        return None
    try:
        wait_s = float(header)
    except ValueError:
        try:
            at = parsedate_to_datetime(header)
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        wait_s = (at - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds()
    return min(max(wait_s, 0.0), RETRY_AFTER_S_MAX) if wait_s == wait_s else None


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and after how long, a request is repeated."""

    count_max: int
    first_s: float


class Pauses:
    """When a server may be asked again, and how often it has failed in a row."""

    def __init__(self, retries: Retries, world: World) -> None:
        self._retries = retries
        self._world = world
        self.failures = 0
        self.due_s = world.monotonic_s()

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, error: RetriableFault) -> bool:
        """Note a failure; return whether the request may be repeated once `due_s` has come."""
        self.failures += 1
        asked_s = error.asked_s if isinstance(error, Unanswered) else None
        if asked_s is None:
            longest_s = self._retries.first_s * (1 << min(self.failures - 1, 16))
            # Half of it is random, so that tasks which failed together do not return together.
            asked_s = min(longest_s, RETRY_S_MAX) * (0.5 + 0.5 * self._world.random())
        self.due_s = self._world.monotonic_s() + asked_s
        return self.failures <= self._retries.count_max

    async def wait(self, wait_s_max: float) -> bool:
        """Wait until the server may be asked, but not longer; return whether it may be now."""
        left_s = self.due_s - self._world.monotonic_s()
        if left_s > 0:
            await self._world.sleep(min(left_s, wait_s_max))
        return left_s <= wait_s_max


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    method: str
    url: str
    headers: Mapping[str, str]
    """Those of the user, with Authorization."""
    connect_s: float
    request_s: float
    retries: Retries
    retry_on: StatusCodes = field(default_factory=lambda: status_codes("408,425,429,500-"))


class Unanswered(RetriableFault):
    """No reply, or one that asks to come again."""

    def __init__(self, text: str, asked_s: float | None = None) -> None:
        super().__init__(text)
        self.asked_s = asked_s


def excerpt(body: bytes) -> str:
    """Return the beginning of a reply as one line."""
    text = body[: SHOWN_CHARS_MAX * 4].decode("utf-8", "replace")
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"{line[:SHOWN_CHARS_MAX]}…" if len(line) > SHOWN_CHARS_MAX else line
