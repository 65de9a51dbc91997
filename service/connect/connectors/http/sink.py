"""Sends records to a server in the order of the log, one or several a request.

A request has the header `Idempotency-Key: <topic>-<partition>-<offset>`, that of a batch
`<topic>-<partition>-<first>-<last>`. A record is sent again after a crash, so a server that keeps
the keys takes each record once. A batch has records of one partition, in order; after a crash it
may be cut elsewhere, so servers that need keys per record get them with batches of one.

What the server refuses (a status that is not to be retried) is reported, record by record.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from service.connect.connectors.api import TaskContext, TopicPartition
from service.connect.connectors.http.bodies import Bodies
from service.connect.connectors.http.client import (
    GuardedClient,
    HttpReply,
    Resolve,
    resolve_by_system,
)
from service.connect.connectors.http.requests import (
    Pauses,
    Unanswered,
    excerpt,
    retry_after_s,
    with_ours,
)
from service.connect.connectors.http.settings import HttpSinkSettings
from service.connect.data.errors import ConnectFault, DataFault, RetriableFault, TaskFault
from service.connect.data.java_text import java_text
from service.connect.data.records import ConnectRecord, FromLog

log = logging.getLogger("riacho")

REPLY_BYTES_MAX: Final = 64 * 1024
"""That are read of a reply, for messages only."""

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""A batch is sent once it has as many, before it has `batch.max.size` records."""

WAIT_S_MAX: Final = 20.0
"""In a put, for a server that is not to be asked yet."""

_REFUSES_THE_TASK: Final = frozenset({401, 403, 407})
"""The fault is not the record's: every other one would be refused, too."""


@dataclass(frozen=True, slots=True)
class _Item:
    record: ConnectRecord
    at: TopicPartition
    offset: int
    method: str
    url: str
    body: bytes | None


class HttpSink:
    def __init__(
        self, context: TaskContext, settings: HttpSinkSettings, resolve: Resolve = resolve_by_system
    ) -> None:
        self._context = context
        self._settings = settings
        self._bodies = Bodies(settings.form)
        self._sent: dict[TopicPartition, int] = {}
        """The offset behind what was sent: a put that failed half-way is repeated whole."""
        self._pauses = Pauses(settings.requests.retries, context.environment.world)
        self._client = GuardedClient(
            context.environment,
            connect_s=settings.requests.connect_s,
            request_s=settings.requests.request_s,
            body_bytes_max=REPLY_BYTES_MAX,
            resolve=resolve,
        )

    async def start(self) -> None:
        pass

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        del partitions
        self._sent.clear()
        return {}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        batch: list[_Item] = []
        size = 0
        for record in records:
            try:
                item = self._item(record)
            except DataFault as error:
                # Those before it first: what was done with a record says so of all before it.
                await self._deliver(batch)
                batch, size = [], 0
                await self._give_up(record, error)
                continue
            if item is None:
                continue
            if not self._fits(batch, size, item):
                await self._deliver(batch)
                batch, size = [], 0
            batch.append(item)
            size += len(item.body or b"")
        await self._deliver(batch)

    async def flush(self) -> None:
        pass

    async def stop(self) -> None:
        await self._client.aclose()

    def _item(self, record: ConnectRecord) -> _Item | None:
        """Return what to send of a record; None: nothing, or it was sent or given up before.

        Raises `DataFault` if it cannot be sent.
        """
        origin = record.origin
        if not isinstance(origin, FromLog):
            raise TaskFault("a record that is not from the log cannot be sent")
        at = TopicPartition(origin.topic, origin.partition)
        if origin.offset < self._sent.get(at, 0):
            return None
        requests, on_null = self._settings.requests, self._settings.on_null
        if record.value is not None:
            body = self._bodies.part_of(record)
            url = _filled(requests.url, record)
            return _Item(record, at, origin.offset, requests.method, url, body)
        if on_null == "delete":
            return _Item(record, at, origin.offset, "DELETE", _filled(requests.url, record), None)
        if on_null == "fail":
            raise DataFault("the value is null, and behavior.on.null.values is fail")
        if on_null == "log":
            log.info("a null was not sent", extra={"at": _key([at, origin.offset])})
        return None

    def _fits(self, batch: Sequence[_Item], size: int, item: _Item) -> bool:
        """Tell whether a record can be in the same request as those before it."""
        if not batch:
            return True
        last = batch[-1]
        return (
            len(batch) < self._settings.batch_max
            and size + len(item.body or b"") <= BATCH_BYTES_MAX
            and (last.at, last.url, last.method) == (item.at, item.url, item.method)
            and item.body is not None
        )

    async def _deliver(self, batch: Sequence[_Item]) -> None:
        if not batch:
            return
        first, last = batch[0], batch[-1]
        requests = self._settings.requests
        ours = {
            "Content-Type": self._settings.form.content_type,
            "Idempotency-Key": _key([first.at, first.offset, *([last.offset] * (len(batch) > 1))]),
        }
        body = None
        if first.body is not None:
            parts = [item.body or b"" for item in batch]
            body = self._bodies.joined(parts, self._settings.is_batch)
        headers = with_ours(ours, requests.headers)
        reply = await self._reply(first.method, first.url, headers, body)
        if reply.status in _REFUSES_THE_TASK:
            raise TaskFault(f"{_answer(reply)}: check auth.type and what belongs to it")
        if not 200 <= reply.status < 300:
            for item in batch:
                await self._give_up(item.record, DataFault(_answer(reply)))
        self._sent[last.at] = last.offset + 1

    async def _reply(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> HttpReply:
        """Raise `RetriableFault` after a failure, and `TaskFault` after too many.

        It is the runner that repeats the put, so that it can stop between two attempts.
        """
        if not await self._pauses.wait(WAIT_S_MAX):
            raise RetriableFault("the server asked to wait longer")
        try:
            reply = await self._client.send(method, url, headers, body)
            if reply.status in self._settings.requests.retry_on:
                now_ms = self._context.environment.world.now_ms()
                asked_s = retry_after_s(reply.headers.get("retry-after"), now_ms)
                raise Unanswered(_answer(reply), asked_s)
        except RetriableFault as error:
            if self._pauses.failed(error):
                raise
            raise TaskFault(f"{error} (in {self._pauses.failures} attempts)") from error
        self._pauses.succeeded()
        return reply

    async def _give_up(self, record: ConnectRecord, error: ConnectFault) -> None:
        if self._settings.on_error == "fail":
            await self._context.report(record, error)
        elif self._settings.on_error == "log":
            log.warning("a record was not sent", extra={"topic": record.topic, "why": str(error)})
        origin = record.origin
        if isinstance(origin, FromLog):
            at = TopicPartition(origin.topic, origin.partition)
            self._sent[at] = max(self._sent.get(at, 0), origin.offset + 1)


def _filled(url: str, record: ConnectRecord) -> str:
    """Return the URL with `${topic}`, `${partition}`, `${offset}` and `${key}` of the record."""
    if "${" not in url:
        return url
    origin = record.origin
    assert isinstance(origin, FromLog), record
    for name, text in _names(record, origin):
        url = url.replace(f"${{{name}}}", quote(text, safe=""))
    return url


def _names(record: ConnectRecord, origin: FromLog) -> Iterator[tuple[str, str]]:
    yield "topic", record.topic
    yield "partition", str(origin.partition)
    yield "offset", str(origin.offset)
    key = record.key
    if isinstance(key, bytes):
        yield "key", key.decode("utf-8", "replace")
    else:
        yield "key", java_text(record.key_schema, key)


def _key(parts: Sequence[TopicPartition | int]) -> str:
    texts = [
        f"{part.topic}-{part.partition}" if isinstance(part, TopicPartition) else str(part)
        for part in parts
    ]
    return "-".join(texts)


def _answer(reply: HttpReply) -> str:
    return f"the server answered {reply.status}: {excerpt(reply.body)}"
