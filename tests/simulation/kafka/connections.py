"""Connections of Kafka's clients to gateways, without sockets.

Frames are encoded, decoded and answered as by a gateway that listens. Handlers of one connection
begin in the order of requests, and replies leave in that order. A connection that is cut takes all
replies with it, and what was begun goes on.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from service.kafka.brokers.brokers import brokers_of
from service.kafka.call import KafkaCall, Peer
from service.kafka.listener.address import BrokerAddress
from service.kafka.listener.dispatch import BadRequest, Dispatch
from service.kafka.parts import Parts
from service.kafka.protocol.codec import decode_response, encode_request
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from service.kafka.table import handlers
from storage.errors import RiachoError
from storage.tasks import drop_error
from tests.simulation.hosts import Host
from tests.simulation.http import NetPlan

CLIENT: Final = "simulated"
ADDRESS: Final = "127.0.0.1"
FIRST_PORT: Final = 9092
JOIN_EVERY_S: Final = 1.0
SIZE_BYTES: Final = 4

PASSING: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Codes after which a client sends the same request again."""


class Lost(Exception):
    """The connection ended before the reply came; the request may have been carried out."""


class Broker:
    """The door of one gateway for Kafka's clients."""

    def __init__(self, host: Host, port: int) -> None:
        self.port = port
        self._host = host
        gateway, registry = host.gateway, host.app._registry
        self._registry = registry
        self._brokers = brokers_of(gateway, registry)
        parts = Parts(
            address=BrokerAddress(host=ADDRESS, port=port),
            brokers=self._brokers,
            **host.app._shared,
        )
        self._dispatch = Dispatch(handlers(parts), parts.metrics, gateway.world.monotonic_s)
        self.is_open = False

    async def join(self) -> None:
        """Become a broker as soon as the table answers, then listen."""
        while not self.is_open:
            try:
                await self._brokers.join(ADDRESS, self.port)
            except RiachoError:
                await asyncio.sleep(JOIN_EVERY_S)
            else:
                self.is_open = True
        with suppress(RiachoError):
            await self._registry.beat()

    async def answer(self, frame: memoryview, peer: Peer) -> bytes | None:
        request = self._dispatch.request(frame)
        call = KafkaCall(
            key=request.key, version=request.version, client_id=request.client_id, peer=peer
        )
        try:
            reply = await self._dispatch.reply(request, call)
        finally:
            for sent in call.when_sent:
                sent()
        return None if reply is None else b"".join(reply.pieces)[SIZE_BYTES:]


class Connection:
    def __init__(self, host: Host, complain: Callable[[str], None]) -> None:
        assert host.broker is not None
        self.broker: Broker = host.broker
        self._host = host
        self._complain = complain
        self._peer = Peer(host=ADDRESS)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._latest: asyncio.Task[Any] | None = None

    @property
    def is_cut(self) -> bool:
        return self._end.done()

    def cut(self) -> None:
        self._peer.is_gone = True
        if not self._end.done():
            self._end.set_result(None)

    def send(self, version: int, request: Any) -> "asyncio.Task[Any]":
        """Send a request now; return what waits for its reply."""
        frame = memoryview(b"".join(encode_request(request.KEY, version, 7, CLIENT, request)))
        work = self._host.process.begin(self.broker.answer(frame[SIZE_BYTES:], self._peer))
        work.add_done_callback(drop_error)
        self._latest = asyncio.create_task(self._in_turn(request.KEY, version, work, self._latest))
        self._latest.add_done_callback(drop_error)
        return self._latest

    async def reply(
        self, sent: "asyncio.Task[Any]", within_s: float, *, is_lost: bool = False
    ) -> Any:
        """Return the reply to what was sent, or cut the connection and raise `Lost`."""
        await asyncio.wait([sent, self._end], timeout=within_s, return_when="FIRST_COMPLETED")
        if sent.done() and not is_lost and not self._end.done():
            return sent.result()
        self.cut()
        if sent.done() and (error := sent.exception()) is not None:
            raise error
        raise Lost

    async def _in_turn(
        self, key: int, version: int, work: "asyncio.Task[Any]", before: "asyncio.Task[Any] | None"
    ) -> Any:
        try:
            frame = await asyncio.shield(work)
        except (RiachoError, BadRequest) as error:
            self.cut()
            raise Lost from error
        except Exception as error:
            self._complain(f"a request failed: {error!r}")
            self.cut()
            raise Lost from error
        if before is not None:
            await asyncio.wait([before])
        return None if frame is None else decode_response(key, version, frame)[1]


class KafkaClient:
    """Connections to all gateways, and who leads which partition of one topic, as far as known."""

    def __init__(
        self,
        net: Callable[[], NetPlan],
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        complain: Callable[[str], None],
        topic: str = "",
    ) -> None:
        self._net = net
        self._chance = chance
        self._hosts = hosts
        self._complain = complain
        self._topic = topic
        self._open: dict[Host, Connection] = {}
        self._leaders: Mapping[int, int] = {}

    async def connection(self, partition: int | None = None) -> Connection:
        """Return a connection to the leader of the partition, or to any gateway."""
        if self._topic and partition not in self._leaders and self._chance.random() < 0.5:
            await self._ask_for_leaders()
        leader = self._leaders.get(-1 if partition is None else partition)
        hosts = [host for host in self._hosts() if host.broker is not None and host.broker.is_open]
        if leader is not None and self._chance.random() < 0.7:
            hosts = [h for h in hosts if h.broker is not None and h.broker.port == leader] or hosts
        if not hosts:
            await asyncio.sleep(0.5)
            raise Lost
        host = self._chance.choice(hosts)
        found = self._open.get(host)
        if found is None or found.is_cut or self._chance.random() < 0.05:
            if len(self._open) > 8:
                self._open.clear()
            found = self._open[host] = Connection(host, self._complain)
        return found

    async def call(self, version: int, request: Any, partition: int | None = None) -> Any:
        """Return the reply to one request, or raise `Lost`."""
        connection = await self.connection(partition)
        return await self.reply(connection, connection.send(version, request))

    async def reply(
        self, connection: Connection, sent: "asyncio.Task[Any]", within_s: float | None = None
    ) -> Any:
        net = self._net()
        is_lost = self._chance.random() < net.lost
        return await connection.reply(sent, within_s or net.timeout_s, is_lost=is_lost)

    def forget_leaders(self) -> None:
        self._leaders = {}

    async def _ask_for_leaders(self) -> None:
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
        )
        self._leaders = {-1: -1}  # Otherwise this would ask for them, too.
        try:
            answer = await self.call(12, wanted)
        except Lost:
            self._leaders = {}
            return
        ports = {broker.node_id: broker.port for broker in answer.brokers}
        self._leaders = {
            each.partition_index: ports[each.leader_id]
            for topic in answer.topics
            for each in topic.partitions
        }
