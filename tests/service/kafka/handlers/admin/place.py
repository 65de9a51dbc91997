"""A gateway in memory, and callers of its administrative handlers."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.controller.live_gateways import LiveGateways
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.http.metrics import Metrics
from service.kafka.brokers.brokers import Brokers
from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.table import handlers
from service.kafka.listener.address import BrokerAddress
from service.kafka.parts import Parts
from service.kafka.protocol.apis import APIS, Api
from service.log.gateway import Gateway
from service.security.acls import Acl, CompiledAcls, Operation, ResourceType
from service.security.assembly import secured
from service.security.caller import ANYONE, Authenticated, Caller
from service.settings import Settings
from service.transactions.fences import Fences
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.transactions import Transactions
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import Clock


class Place:
    """One table and its zones; `broker` adds a gateway."""

    def __init__(self, zones: str = "a", **settings: Any) -> None:
        self.clock = Clock()
        chance = random.Random(1)
        self.world = replace(
            real_world(),
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        self.table = MemoryMetadata(self.world.new_version)
        self.zones = {name: MemoryObjects() for name in zones}
        self.settings = Settings(gateway_heartbeat_s=10, **settings)

    async def broker(self, port: int = 9092, *, has_security: bool = False) -> "BrokerUnderTest":
        gateway = Gateway(self.settings, Zones(self.zones), self.table, self.world)
        registry = LiveGateways(self.settings, self.table, self.world)
        brokers = Brokers(registry, self.table, self.world)
        await brokers.join("127.0.0.1", port)
        await registry.beat()
        ids = ProducerIds(self.table, self.world)
        items = TransactionItems(self.table, ids, self.world)
        coordinator = Coordinator(self.table, gateway.topics, self.world)
        offsets = Offsets(self.table, gateway.topics, coordinator, self.world)
        return BrokerUnderTest(
            Parts(
                gateway=gateway,
                registry=registry,
                metrics=Metrics(),
                coordinator=coordinator,
                offsets=offsets,
                producer_ids=ids,
                transaction_items=items,
                transactions=Transactions(gateway, offsets, ids, items),
                fences=Fences(ids, items),
                staging=Staging(gateway, items),
                security=secured(self.settings, self.table, self.world) if has_security else None,
                address=BrokerAddress(host="127.0.0.1", port=port),
                brokers=brokers,
            )
        )


class BrokerUnderTest:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.gateway = parts.gateway
        self._handlers = handlers(parts)

    async def answer(
        self, request: Any, caller: Caller = ANYONE, version: int | None = None
    ) -> Any:
        """Return the response to `request`, in the newest version unless another is given."""
        api = APIS[Api(request.KEY)]
        newest = api.versions.last if version is None else version
        call = KafkaCall(key=api.key, version=newest, client_id="test", caller=caller)
        response = await self._handlers[api.key](call, request)
        assert type(response) is api.response
        return response

    async def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        batch = batch_of(*values)
        await self.gateway.produce(topic, batch, batch.nbytes, partition)


class Someone:
    """A caller with ACLs, and a record of what it has changed."""

    def __init__(
        self, acls: Sequence[Acl] = (), *, prefix: str = "", is_super: bool = False
    ) -> None:
        self.changes: list[tuple[str, str, str]] = []
        self.caller = Caller(
            Authenticated(
                principal="User:ana",
                credential_id="k",
                door="sasl",
                name_prefix=prefix,
                is_super=is_super,
            ),
            CompiledAcls(acls),
            "127.0.0.1",
            refused=lambda *_: None,
            changed=lambda _, op, kind, name: self.changes.append((op, kind, name)),
        )


def may(operation: Operation, kind: ResourceType, name: str = "kafka-cluster") -> Acl:
    return Acl(resource_type=kind, resource_name=name, principal="User:ana", operation=operation)
