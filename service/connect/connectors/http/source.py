"""Asks a server for records now and then, and goes on from the position of the last one.

With a pointer to the offset of a record the position is `{"offset": …, "same": n}`: how many
records of this offset were read, one after the other. The next request may have it in its URL or
its body as `${offset}`. Records of a reply up to the `n`th with this offset were read before: so
servers may give what comes after the offset, or what begins with it.

Without one every reply is read whole if it differs from the one before: the position has the digest
of the reply and how many of its records were read.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from service.connect.connectors.api import TaskContext
from service.connect.connectors.http.client import (
    GuardedClient,
    HttpReply,
    Resolve,
    resolve_by_system,
)
from service.connect.connectors.http.pointers import found_at
from service.connect.connectors.http.requests import (
    Pauses,
    Unanswered,
    excerpt,
    retry_after_s,
    with_ours,
)
from service.connect.connectors.http.settings import HttpSourceSettings
from service.connect.connectors.http.urls import parsed_url, shown
from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord, FromSource

log = logging.getLogger("riacho")

REPLY_BYTES_MAX: Final = 8 * 1024 * 1024
OFFSET: Final = "${offset}"


class HttpSource:
    def __init__(
        self,
        context: TaskContext,
        settings: HttpSourceSettings,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        self._context = context
        self._settings = settings
        # Without its query, which may hold a secret, and change without being another source.
        self._partition = {"url": shown(parsed_url(settings.requests.url))}
        self._position: Mapping[str, Any] = {}
        self._waiting: list[ConnectRecord] = []
        """Of the last reply."""
        self._pauses = Pauses(settings.requests.retries, context.environment.world)
        self._etag: tuple[str, str] | None = None
        """The URL of the last reply that was read to its end, and its tag."""
        self._client = GuardedClient(
            context.environment,
            connect_s=settings.requests.connect_s,
            request_s=settings.requests.request_s,
            body_bytes_max=REPLY_BYTES_MAX,
            resolve=resolve,
        )

    async def start(self) -> None:
        [position] = await self._context.offsets.read([self._partition])
        self._position = position or {}
        tag = self._position.get("etag")
        if isinstance(tag, str):
            self._etag = (self._url(), tag)

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        if not self._waiting:
            if not await self._pauses.wait(wait_s):
                return []
            await self._ask()
        given, self._waiting = self._waiting[:records_max], self._waiting[records_max:]
        if given:
            origin = given[-1].origin
            assert isinstance(origin, FromSource), given
            self._position = origin.offset
        return given

    async def committed(self) -> None:
        pass

    async def stop(self) -> None:
        await self._client.aclose()

    def _url(self) -> str:
        return self._settings.requests.url.replace(OFFSET, quote(self._offset_text(), safe=""))

    def _offset_text(self) -> str:
        offset = self._position.get("offset", self._settings.offset_initial)
        return offset if isinstance(offset, str) else msgspec.json.encode(offset).decode()

    async def _ask(self) -> None:
        world = self._context.environment.world
        url = self._url()
        try:
            reply = await self._reply(url)
        except RetriableFault as error:
            self._after_failure(error)
            return
        self._pauses.succeeded()
        self._waiting = [] if reply.status == 304 else await self._records(reply)
        if "etag" in reply.headers:
            # All that waits is given before the next request.
            self._etag = (url, reply.headers["etag"])
        # After some there may be more at once; a reply without new ones says that there are none.
        goes_on = (
            bool(self._waiting) and OFFSET in self._settings.requests.url + self._settings.body
        )
        self._pauses.due_s = world.monotonic_s() + (0.0 if goes_on else self._settings.interval_s)

    async def _reply(self, url: str) -> HttpReply:
        requests = self._settings.requests
        ours = {"Accept": "application/json"}
        if self._etag is not None and self._etag[0] == url:
            ours["If-None-Match"] = self._etag[1]
        body = None
        if self._settings.body:
            # Inside quotes of JSON, as far as it needs that.
            escaped = msgspec.json.encode(self._offset_text())[1:-1].decode()
            body = self._settings.body.replace(OFFSET, escaped).encode()
            ours["Content-Type"] = "application/json"
        headers = with_ours(ours, requests.headers)
        reply = await self._client.send(requests.method, url, headers, body)
        if reply.status in requests.retry_on:
            now_ms = self._context.environment.world.now_ms()
            raise Unanswered(
                _answer(reply), retry_after_s(reply.headers.get("retry-after"), now_ms)
            )
        return reply

    def _after_failure(self, error: RetriableFault) -> None:
        """Ask again after a while; fail after too many."""
        if not self._pauses.failed(error):
            raise TaskFault(f"{error} (in {self._pauses.failures} attempts)") from error
        log.warning("a server was asked in vain", extra={"why": str(error)})

    async def _records(self, reply: HttpReply) -> list[ConnectRecord]:
        if not 200 <= reply.status < 300:
            raise TaskFault(_answer(reply))
        if reply.is_cut:
            raise TaskFault(
                f"the reply has more than {REPLY_BYTES_MAX} bytes: ask for fewer records at a time"
            )
        found = _list(self._settings.list_pointer, reply.body)
        if self._settings.offset_pointer is None:
            return await self._of_document(reply, found)
        return await self._of_offsets(self._settings.offset_pointer, found)

    async def _of_document(self, reply: HttpReply, found: Sequence[Any]) -> list[ConnectRecord]:
        digest = hashlib.sha256(reply.body).hexdigest()[:32]
        read = self._position.get("read", 0) if self._position.get("digest") == digest else 0
        records: list[ConnectRecord] = []
        for n, each in enumerate(found[read:], start=read + 1):
            position: dict[str, Any] = {"digest": digest, "read": n}
            if n == len(found) and "etag" in reply.headers:
                position["etag"] = reply.headers["etag"]
            await self._add(records, each, position)
        return records

    async def _of_offsets(
        self, pointer: Sequence[str], found: Sequence[Any]
    ) -> list[ConnectRecord]:
        before = self._position
        offsets = [_scalar_at(pointer, each) for each in found]
        seen = [n for n, offset in enumerate(offsets) if before and offset == before.get("offset")]
        start = seen[: int(before.get("same", 1))][-1] + 1 if seen else 0
        records: list[ConnectRecord] = []
        position = before
        for each, offset in zip(found[start:], offsets[start:], strict=True):
            if offset is None:
                fault = DataFault(f"the record has no offset at {_shown(pointer)}")
                await self._context.report(self._record(each, None, position), fault)
                continue
            is_same = bool(position) and position.get("offset") == offset
            position = {"offset": offset, "same": position.get("same", 1) + 1 if is_same else 1}
            await self._add(records, each, position)
        return records

    async def _add(
        self, records: list[ConnectRecord], found: Any, position: Mapping[str, Any]
    ) -> None:
        settings = self._settings
        try:
            key = None if settings.key_pointer is None else found_at(settings.key_pointer, found)
            value = found_at(settings.value_pointer, found)
        except KeyError as error:
            fault = DataFault(f"the record has nothing at {error} of a pointer to its key or value")
            await self._context.report(self._record(found, None, position), fault)
        else:
            records.append(self._record(value, key, position))

    def _record(self, value: Any, key: Any, position: Mapping[str, Any]) -> ConnectRecord:
        return ConnectRecord(
            topic=self._settings.topic,
            partition=None,
            key=key,
            value=value,
            timestamp_ms=self._context.environment.world.now_ms(),
            origin=FromSource(self._partition, position),
        )


def _list(pointer: Sequence[str], body: bytes) -> Sequence[Any]:
    try:
        found = found_at(pointer, msgspec.json.decode(body) if body.strip() else [])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TaskFault(f"the reply is not JSON: {error}: {excerpt(body)}") from error
    except KeyError:
        raise TaskFault(f"the reply has nothing at {_shown(pointer)}: {excerpt(body)}") from None
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _scalar_at(pointer: Sequence[str], value: Any) -> Any:
    """Return the offset of a record; None: it has none that a position can hold."""
    try:
        found = found_at(pointer, value)
    except KeyError:
        return None
    return found if isinstance(found, str | int | float) else None


def _shown(pointer: Sequence[str]) -> str:
    return "/" + "/".join(pointer)


def _answer(reply: HttpReply) -> str:
    return f"the server answered {reply.status}: {excerpt(reply.body)}"
