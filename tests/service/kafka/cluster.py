"""Gateways with Kafka's handlers and without sockets, over stores in memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from service.controller.live_gateways import LiveGateways
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.http.metrics import NoMetrics
from service.kafka.brokers.brokers import brokers_of
from service.kafka.call import KafkaCall, Peer
from service.kafka.listener.address import BrokerAddress
from service.kafka.parts import Parts
from service.kafka.protocol.codec import encode_response
from service.kafka.table import handlers
from service.log.gateway import Gateway
from service.security.caller import ANYONE, Caller
from service.settings import Settings
from service.transactions.fences import Fences
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.transactions import Transactions
from service.world.clock import World, real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import MetadataStore
from storage.stores.objects import ObjectStore
from storage.zones.zones import Zones


class KafkaGateway:
    """One gateway, and a connection to it."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.gateway = parts.gateway
        self.brokers = parts.brokers
        self._handlers = handlers(parts)
        self.peer = Peer(host="127.0.0.1")

    def serves(self, key: int) -> bool:
        return key in self._handlers

    async def call(
        self,
        version: int,
        request: Any,
        *,
        caller: Caller = ANYONE,
        client_id: str = "test",
        peer: Peer | None = None,
    ) -> Any:
        """Return the response, once it has proved that it can be encoded."""
        call = KafkaCall(
            key=request.KEY,
            version=version,
            client_id=client_id,
            caller=caller,
            peer=peer or self.peer,
        )
        response = await self._handlers[request.KEY](call, request)
        if response is not None:
            encode_response(request.KEY, version, 1, response)
        for sent in call.when_sent:
            sent()
        return response


def parts_of(gateway: Gateway, registry: LiveGateways, port: int = 9092) -> Parts:
    ids = ProducerIds(gateway.metadata, gateway.world)
    items = TransactionItems(gateway.metadata, ids, gateway.world)
    coordinator = Coordinator(gateway.metadata, gateway.topics, gateway.world)
    offsets = Offsets(gateway.metadata, gateway.topics, coordinator, gateway.world)
    return Parts(
        gateway=gateway,
        registry=registry,
        metrics=NoMetrics(),
        coordinator=coordinator,
        offsets=offsets,
        producer_ids=ids,
        transaction_items=items,
        transactions=Transactions(gateway, offsets, ids, items),
        fences=Fences(ids, items),
        staging=Staging(gateway, items),
        security=None,
        address=BrokerAddress(host="127.0.0.1", port=port),
        brokers=brokers_of(gateway, registry),
    )


@asynccontextmanager
async def kafka_gateway(
    metadata: MetadataStore | None = None,
    objects: ObjectStore | None = None,
    *,
    port: int = 9092,
    world: World | None = None,
    **settings: Any,
) -> AsyncIterator[KafkaGateway]:
    """Run a gateway over these stores, or over new ones."""
    world = world or real_world()
    given = Settings.model_validate({"gateway_heartbeat_s": 0, "linger_max_ms": 1, **settings})
    metadata = metadata or MemoryMetadata(world.new_version)
    gateway = Gateway(given, Zones({"a": objects or MemoryObjects()}), metadata, world)
    registry = LiveGateways(given, metadata, world)
    found = KafkaGateway(parts_of(gateway, registry, port))
    await found.brokers.join("127.0.0.1", port)
    await registry.beat()
    yield found
    await gateway.aclose()


def batch(
    *values: bytes | None,
    keys: Sequence[bytes | None] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
    stamps: Sequence[int] = (),
    is_transactional: bool = False,
    codec: int = 0,
    headers: Mapping[int, list[tuple[str, bytes]]] | None = None,
) -> bytes:
    """Return what a producer sends: a batch of these values, as aiokafka encodes it."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1 if is_transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    for number, value in enumerate(values):
        key = keys[number] if keys else b"k%d" % number
        stamp = stamps[number] if stamps else 1_000 + number
        builder.append(number, stamp, key, value, (headers or {}).get(number, []))
    return bytes(builder.build())
