"""How requests of a connector are made: whom they are from, how long they take, when to retry."""

import base64
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from service.connect.data.errors import RetriableFault
from service.world.clock import World

RETRY_S_MAX: Final = 60.0
"""Between two attempts."""

RETRY_AFTER_S_MAX: Final = 300.0
"""Of what a server may ask for."""

CODES_MAX: Final = 50
SHOWN_CHARS_MAX: Final = 300
"""Of a reply, in errors."""

_T = TypeVar("_T")
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
    """So many more attempts, each after a longer wait."""

    retries_max: int
    first_s: float

    def wait_s(self, attempt: int, asked_s: float | None, world: World) -> float:
        """Return how long to wait after the attempt with this number, from 1."""
        if asked_s is not None:
            return asked_s
        # Half of it is random, so that tasks which failed together do not return together.
        longest_s = min(self.first_s * (1 << min(attempt - 1, 16)), RETRY_S_MAX)
        return longest_s * (0.5 + 0.5 * world.random())


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


async def with_retries(call: Callable[[], Awaitable[_T]], retries: Retries, world: World) -> _T:
    """Repeat `call` while it raises `RetriableFault`, and raise the last one."""
    for attempt in range(1, retries.retries_max + 2):
        try:
            return await call()
        except RetriableFault as error:
            if attempt > retries.retries_max:
                raise
            asked_s = error.asked_s if isinstance(error, Unanswered) else None
            await world.sleep(retries.wait_s(attempt, asked_s, world))
    raise AssertionError("the last attempt returns or raises")


def excerpt(body: bytes) -> str:
    """Return the beginning of a reply as one line."""
    text = body[: SHOWN_CHARS_MAX * 4].decode("utf-8", "replace")
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"{line[:SHOWN_CHARS_MAX]}…" if len(line) > SHOWN_CHARS_MAX else line
