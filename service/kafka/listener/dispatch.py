"""From the bytes of a request to the bytes of its reply; no sockets.

A version that nobody knows of ApiVersions gets a reply that every client can read, in the layout
of version 0, with the versions that are known. Another unknown key or version, and a body that
cannot be read, end the connection, as in Kafka.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from service.kafka.call import Handler, KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.listener.api_versions import api_versions, unsupported_version
from service.kafka.protocol.apis import APIS, Api, ApiDefinition
from service.kafka.protocol.codec import (
    RequestHeader,
    decode_request,
    encode_response,
    read_header,
)
from service.kafka.protocol.wire import Buffer, MalformedFrame
from storage.errors import RiachoError

OF_PARTITIONS: Final = frozenset(
    {Api.PRODUCE, Api.FETCH, Api.LIST_OFFSETS, Api.METADATA, Api.OFFSET_FOR_LEADER_EPOCH}
)
OF_ADMINS: Final = frozenset(range(Api.DESCRIBE_ACLS, Api.LIST_CONFIG_RESOURCES + 1)) - {
    Api.DELETE_GROUPS,
    Api.OFFSET_DELETE,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.CONSUMER_GROUP_DESCRIBE,
} | {Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.DELETE_RECORDS}


AT_ONCE_BYTES: Final = 64 * 1024
"""Longer bodies may hold many thousands of elements, each of which takes a microsecond."""


class BadRequest(Exception):
    """A request to which there is no reply: the connection is closed."""


class RequestCounts(Protocol):
    """RequestCounts requests by the name of their API."""

    def kafka(self, api: str, took_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SentReply:
    pieces: Sequence[Buffer]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose header was read, and not its body."""

    header: RequestHeader
    api: ApiDefinition
    is_known: bool
    """Whether we speak its version."""

    @property
    def key(self) -> int:
        return self.header.key

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""


class Dispatch:
    """The handlers of a gateway, and what it tells clients of them."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        counts: RequestCounts,
        monotonic_s: Callable[[], float],
    ) -> None:
        served = {*handlers, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.API_VERSIONS}
        self._handlers = {**handlers, Api.API_VERSIONS: api_versions(served)}
        self._served = frozenset(int(key) for key in served)
        self._counts = counts
        self._monotonic_s = monotonic_s
        self._converting = asyncio.Semaphore(1)

    def request(self, frame: memoryview) -> Request:
        """Return what the header says; raises `BadRequest`."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        version = int.from_bytes(frame[2:4], "big", signed=True)
        api = APIS.get(key) if key in self._served else None  # type: ignore[call-overload]
        if api is None:
            raise BadRequest(f"API {key} is not served")
        is_known = api.speaks(version)
        if not is_known and key != Api.API_VERSIONS:
            raise BadRequest(f"version {version} of API {key} is not served")
        try:
            header = read_header(frame)
        except MalformedFrame as error:
            raise BadRequest(f"the header of a request cannot be read: {error}") from None
        return Request(header, api, is_known)

    def decoded(self, request: Request) -> Any:
        """Return the message; raises `BadRequest`."""
        try:
            return decode_request(request.key, request.version, request.header.body)
        except MalformedFrame as error:
            name = request.api.key.name
            raise BadRequest(f"the body of {name} cannot be read: {error}") from None

    async def _decoded_soon(self, request: Request) -> Any:
        """Return the message, decoded in a thread if that may take long.

        Not those of Produce: they are long because of records, which are not looked at here, and
        are handled in the order of arrival.
        """
        if len(request.header.body) <= AT_ONCE_BYTES or request.key == Api.PRODUCE:
            return self.decoded(request)
        async with self._converting:
            return await asyncio.to_thread(self.decoded, request)

    async def _encoded_soon(self, request: Request, response: Any) -> SentReply:
        """Return the reply, encoded in a thread if so much was asked for that it may take long."""
        if len(request.header.body) <= AT_ONCE_BYTES or request.key == Api.PRODUCE:
            return self.encoded(request, response)
        async with self._converting:
            return await asyncio.to_thread(self.encoded, request, response)

    def encoded(self, request: Request, response: Any, version: int | None = None) -> SentReply:
        version = request.version if version is None else version
        pieces = encode_response(request.key, version, request.header.correlation_id, response)
        return SentReply(pieces, getattr(response, "throttle_time_ms", 0))

    async def reply(self, request: Request, call: KafkaCall) -> SentReply | None:
        """Return the reply of the handler; None: there is none to send.

        Raises `BadRequest`, and an error for which the response has no place.
        """
        if not request.is_known:
            return self.encoded(request, unsupported_version(), version=0)
        began_s = self._monotonic_s()
        message = await self._decoded_soon(request)
        try:
            response = await self._handlers[request.key](call, message)
        except RiachoError as error:
            # A handler answers what a client may send; this is the store, or a gap.
            response = request.api.response()
            if not hasattr(response, "error_code"):
                raise
            response.error_code = code_of(error, _asked(request.key))
            if hasattr(response, "error_message"):
                response.error_message = str(error)
        reply = None if response is None else await self._encoded_soon(request, response)
        self._counts.kafka(request.api.key.name, self._monotonic_s() - began_s)
        return reply


def _asked(key: int) -> Asked:
    if key in OF_PARTITIONS:
        return Asked.PARTITION
    return Asked.ADMIN if key in OF_ADMINS else Asked.COORDINATOR
