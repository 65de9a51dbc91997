"""Reading requests: query strings, bodies with limits, what a client accepts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast, get_args
from urllib.parse import parse_qsl

from starlette.requests import Request

from service.http.bodies.arrow_fetch import OffsetsForm
from service.http.bodies.fields import OFFSET_MAX
from service.http.bodies.json_fetch import ValueFormat
from service.log.gateway import Place, Position
from service.process.limits.admission import Hold
from service.process.limits.heavy_work import HeavyWork
from service.process.limits.record_limits import PARTITION_MAX
from storage.crypto.keyring import NUMBER_MAX
from storage.errors import InvalidRequest, NotAcceptable, RequestTooLarge
from storage.formats.partitions import PartitionNumber

BODY_S_MAX: Final = 60.0
"""Maximum time for a body to arrive: its bytes are held in memory meanwhile."""

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
SSE: Final = "text/event-stream"

QUERY: Final = "riacho.query"
"""In a scope: names of the query parameters that the route has."""


class Query:
    """The query string, checked: nothing unknown, nothing twice, every value in its range."""

    def __init__(self, request: Request) -> None:
        pairs = _pairs(request.scope["query_string"])
        known: Sequence[str] = request.scope[QUERY]
        self._values: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                raise InvalidRequest(
                    f"query: there is no parameter {name!r}; known are {', '.join(known) or 'none'}"
                )
            if name in self._values:
                raise InvalidRequest(f"query: {name} is given twice")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return the number, or None if it is not given."""
        text = self._values.get(name)
        if text is None:
            return None
        number = parse_integer(name, text)
        if not low <= number <= high:
            raise InvalidRequest(f"query: {name} must be from {low} to {high}, not {number}")
        return number

    def boolean(self, name: str) -> bool:
        """Return whether it is given and true."""
        text = self._values.get(name, "false")
        if text not in ("true", "false"):
            raise InvalidRequest(f"query: {name} must be true or false, not {text!r}")
        return text == "true"

    def up_to(self, name: str, default: int, high: int, low: int = 1) -> int:
        """Return the number or its default, at most `high`."""
        number = self.integer(name, low, OFFSET_MAX)
        return default if number is None else min(number, high)

    def value_format(self) -> ValueFormat:
        text = self._values.get("value_format", "text")
        if text not in get_args(ValueFormat):
            raise InvalidRequest(f"query: value_format must be text, json or base64, not {text!r}")
        return cast(ValueFormat, text)

    def offsets_form(self) -> OffsetsForm:
        text = self._values.get("offsets", "base")
        if text not in get_args(OffsetsForm):
            raise InvalidRequest(f"query: offsets must be base, column or either, not {text!r}")
        return cast(OffsetsForm, text)

    def position(self) -> Position:
        """Return where to read: `offset` or `at`, and the beginning if neither is given."""
        offset, at = self._values.get("offset"), self._values.get("at")
        if offset is not None and at is not None:
            raise InvalidRequest("query: give offset or at, not both")
        if offset is not None:
            return Position(offset=parse_integer("offset", offset))
        return Position(at=parse_place("earliest" if at is None else at))


def _pairs(query: bytes) -> Iterable[tuple[str, str]]:
    if not query:
        return ()
    try:
        return parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError as error:
        raise InvalidRequest(f"query: {error}") from None


def parse_integer(name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise InvalidRequest(f"query: {name} must be a whole number, not {text!r}")
    return int(text)


def parse_place(text: str) -> Place:
    """Return a moment: `earliest`, `latest`, or milliseconds since 1970."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(
            f"query: at must be earliest, latest or a timestamp in ms, not {text!r}"
        )
    return int(text)


def parse_event_id(text: str) -> int:
    """Return the offset that a server-sent event had for its id."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(f"Last-Event-ID must be an offset, not {text!r}")
    return int(text)


def partition_of(request: Request) -> PartitionNumber:
    return parse_partition(request.path_params["partition"])


def parse_partition(text: str) -> PartitionNumber:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > PARTITION_MAX:
        raise InvalidRequest(f"partition: must be a number from 0 to {PARTITION_MAX}, not {text!r}")
    return PartitionNumber(int(text))


def parse_data_key(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 8 or not 1 <= int(text) <= NUMBER_MAX:
        raise InvalidRequest(f"data_key: must be a number from 1 to {NUMBER_MAX}, not {text!r}")
    return int(text)


async def read_body(
    request: Request,
    hold: Hold,
    heavy_work: HeavyWork,
    *,
    request_bytes_max: int,
    decompressed_bytes_max: int,
) -> bytes:
    """Return the body, decompressed. `hold` counts its bytes until it is released."""
    declared_bytes = parse_length(request.headers.get("content-length", ""))
    if declared_bytes:
        _check_size(declared_bytes, request_bytes_max)
        hold.check(declared_bytes)
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for chunk in request.stream():
                size_bytes += len(chunk)
                _check_size(size_bytes, request_bytes_max)
                hold.grow_to(size_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise InvalidRequest(
            f"the body did not arrive within {BODY_S_MAX:.0f} s, only {size_bytes} bytes of it"
        ) from None
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    del chunks
    encoding = request.headers.get("content-encoding")
    if encoding is not None:
        body = await heavy_work.inflate(body, encoding, decompressed_bytes_max, hold)
    return body


def parse_length(text: str) -> int:
    """Return how many bytes `Content-Length` announces, or 0 if it is invalid.

    An HTTP server refuses an invalid header, but not every host that calls the gateway is one. The
    bytes are counted in any case.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if is_number else 0


def _check_size(size_bytes: int, size_bytes_max: int) -> None:
    if size_bytes > size_bytes_max:
        raise RequestTooLarge(
            f"the body has {size_bytes} bytes or more, the limit is {size_bytes_max};"
            " send several requests"
        )


def accepted(headers: Mapping[str, str], offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers; the first if it has no preference.

    Raises `NotAcceptable` if the client accepts none of them.
    """
    wish = headers.get("accept")
    if not wish or wish in {"*/*", offered[0]}:
        return offered[0]
    best, best_weight = "", 0.0
    for media_type in offered:
        weight = _weight(wish, media_type)
        if weight > best_weight:
            best, best_weight = media_type, weight
    if not best:
        raise NotAcceptable(f"this path answers with {', '.join(offered)}, not with {wish!r}")
    return best


def _weight(wish: str, media_type: str) -> float:
    """Return the weight of `media_type` in an Accept header: the most specific range decides."""
    kind = media_type.split("/")[0]
    rank = {"*/*": 0, f"{kind}/*": 1, media_type: 2}
    found = (-1, 0.0)
    for item in wish.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        position = rank.get(name.lower(), -1)
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if position > found[0]:
            found = (position, weight)
    return found[1]
