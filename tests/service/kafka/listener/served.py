"""Listeners in the process of the test, at free ports, and a client that sends bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from service.controller.live_gateways import LiveGateways, stop
from service.http.metrics import NoMetrics
from service.kafka.call import Handler
from service.kafka.door import KafkaDoor, kafka_door
from service.kafka.listener.address import HostPort, bound
from service.kafka.listener.connection import ConnectionLimits, Shared
from service.kafka.listener.dispatch import Dispatch
from service.kafka.listener.listener import Listener
from service.kafka.listener.room import Room
from service.kafka.listener.session import OpenSession
from service.kafka.parts import Parts
from service.kafka.protocol.codec import decode_response, encode_request
from service.log.gateway import Gateway
from service.process.limits.admission import Admission
from service.security.assembly import Security, secured
from service.settings import Settings
from service.world.clock import World, real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones
from tests.service.kafka.cluster import parts_of

PATIENCE_S = 30.0


_OPEN: list["Client"] = []


def close_clients() -> None:
    while _OPEN:
        _OPEN.pop().close()


class Client:
    """A connection, as bytes and as messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def to(cls, port: int, context: ssl.SSLContext | None = None) -> "Client":
        host = "localhost" if context else None
        made = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=host, limit=1 << 27
        )
        client = cls(*made)
        _OPEN.append(client)
        return client

    def send(self, version: int, request: Any, client_id: str = "test") -> int:
        self._correlation_id += 1
        pieces = encode_request(request.KEY, version, self._correlation_id, client_id, request)
        self.writer.writelines(bytes(piece) for piece in pieces)
        return self._correlation_id

    async def frame(self) -> bytes:
        """Return the next reply; raises `asyncio.IncompleteReadError` at the end."""
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def ask(self, version: int, request: Any, client_id: str = "test") -> Any:
        number = self.send(version, request, client_id)
        correlation_id, response = decode_response(request.KEY, version, await self.frame())
        assert correlation_id == number
        return response

    async def is_closed(self) -> bool:
        """Wait for the end of what comes; whether nothing came before it."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


class Served:
    def __init__(self, shared: Shared, listener: Listener, port: int) -> None:
        self.shared = shared
        self.listener = listener
        self.port = port

    async def client(self) -> Client:
        return await Client.to(self.port)

    async def quiet(self, count: int = 0) -> None:
        """Wait until so many connections are left."""
        async with asyncio.timeout(PATIENCE_S):
            while self.listener.count != count:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def served(
    handlers: Mapping[int, Handler],
    *,
    held_bytes_max: int = 1 << 26,
    **limits: Any,
) -> AsyncIterator[Served]:
    """Listen without security, with these handlers."""
    world = real_world()
    shared = Shared(
        dispatch=Dispatch(handlers, NoMetrics(), world.monotonic_s),
        room=Room(Admission(held_bytes_max)),
        limits=ConnectionLimits(**limits),
        monotonic_s=world.monotonic_s,
        new_session=lambda peer, connection: OpenSession(),
    )
    listener = Listener(shared)
    sockets = [bound(HostPort("127.0.0.1", 0))]
    await listener.start(sockets)
    found = Served(shared, listener, sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        close_clients()
        await listener.stop(within_s=5)


@asynccontextmanager
async def door(
    *, world: World | None = None, context: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[tuple[KafkaDoor, Gateway, Security]]:
    """Open the door of a gateway with security, in memory."""
    world = world or real_world()
    given = Settings.model_validate(
        {"gateway_heartbeat_s": 0, "linger_max_ms": 1, "kafka": "127.0.0.1:0", **settings}
    )
    metadata = MemoryMetadata(world.new_version)
    gateway = Gateway(given, Zones({"a": MemoryObjects()}), metadata, world)
    registry = LiveGateways(given, metadata, world)
    security = secured(given, metadata, world)

    def parts(address: Any, brokers: Any) -> Parts:
        made = parts_of(gateway, registry)
        fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
        return Parts(**fields | {"address": address, "brokers": brokers, "security": security})

    opened = kafka_door(gateway, registry, parts, is_secure=True, context=context)
    assert opened is not None
    serving = asyncio.create_task(opened.run())
    try:
        yield opened, gateway, security
    finally:
        close_clients()
        await stop(serving)
        await opened.stop()
        await security.audit.aclose()
        await gateway.aclose()
