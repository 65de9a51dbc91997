"""The Kafka door of a gateway of `tests/service/groups/cluster.py`, without sockets."""

from types import SimpleNamespace
from typing import Any, cast

from service.groups.assignors import TopicPartition
from service.kafka.call import KafkaCall, Peer
from service.kafka.handlers.groups import native
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from service.security.caller import ANYONE, Caller
from service.settings import Settings
from storage.formats.partitions import PartitionNumber
from tests.service.groups.cluster import GROUP, TOPIC, Cluster, Gateway


class Door:
    def __init__(self, cluster: Cluster, gateway: Gateway, caller: Caller = ANYONE) -> None:
        self.cluster = cluster
        self.gateway = gateway
        self.caller = caller
        near = SimpleNamespace(
            world=gateway.world,
            settings=Settings(group_consumer_session_timeout_ms=10_000),
            metadata=cluster.metadata,
        )
        parts = SimpleNamespace(
            gateway=near, coordinator=gateway.coordinator, offsets=gateway.offsets
        )
        self._handlers = native.handlers(cast(Parts, parts))

    async def ask(self, key: Api, version: int, request: Any) -> Any:
        call = KafkaCall(
            key=key,
            version=version,
            client_id="client",
            caller=self.caller,
            peer=Peer(host="10.0.0.1"),
        )
        return await self._handlers[key](call, request)


class Consumer:
    """A client as Java's: it owns what it was given, and tells so when that has changed."""

    def __init__(self, member_id: str, **fields: Any) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: list[TopicPartition] = []
        self.told: list[TopicPartition] | None = None
        self.fields = {"subscribed_topic_names": [TOPIC], "rebalance_timeout_ms": 30_000, **fields}

    async def beat(self, door: Door, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send what Java sends, with `changes`; do what the reply says if it is no error."""
        response = await self.ask(door, **changes)
        if response.error_code == 0 and response.assignment is not None:
            await self.follow(door, response)
        return response

    async def ask(self, door: Door, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        ids = (await door.gateway.coordinator.topics()).ids
        fields: dict[str, Any] = {"topic_partitions": None}
        if self.epoch == 0:
            fields = {**self.fields, "topic_partitions": []}
        elif self.owned != self.told:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatTopicPartitions(topic_id=ids[topic], partitions=[partition])
                for topic, partition in self.owned
                if topic in ids
            ]
        self.told = list(self.owned)
        request = ConsumerGroupHeartbeatRequest(
            **{
                "group_id": GROUP,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                **fields,
                **changes,
            }
        )
        answer = await door.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    async def follow(self, door: Door, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.assignment is not None
        names = (await door.gateway.coordinator.topics()).names
        self.epoch = response.member_epoch
        owned = [
            (names[bytes(one.topic_id)], PartitionNumber(partition))
            for one in response.assignment.topic_partitions
            for partition in one.partitions
        ]
        if owned != self.owned:
            # The reply is new even if what is owned is what was told last.
            self.told = None
        self.owned = owned
