"""The live brokers, as this gateway knows them, and its own place among them.

A gateway joins when it listens for Kafka's clients, and its address goes out with its heartbeats.
The list is read at most once in `LIVE_AGE_S`; while the table does not answer, the last list
stands. The gateway's own broker is always in it, until it leaves: then it is named only if there
is no other.
"""

from collections.abc import Sequence
from typing import Final, Literal

from service.controller.live_gateways import KafkaAddress, LiveGateways
from service.kafka.brokers import membership
from service.kafka.brokers.leaders import Broker, chosen, lane_key, near, zone_of
from service.log.gateway import Gateway
from service.world.clock import World
from storage.errors import RiachoError
from storage.formats.partitions import PartitionNumber
from storage.stores.metadata import MetadataStore
from storage.tasks import SingleFlight
from storage.topics.topics import Topic

LIVE_AGE_S: Final = 2.0
"""Maximum age of the list of live brokers."""

LEADER_EPOCH: Final = 0
"""Of every partition, for ever: a change of leaders fences no one and truncates nothing."""

LeaderRule = Literal["lane", "one"]


class Brokers:
    def __init__(
        self,
        registry: LiveGateways,
        metadata: MetadataStore,
        world: World,
        *,
        zone: str = "",
        rule: LeaderRule = "lane",
    ) -> None:
        """Name leaders by `rule`: one for each lane, or `one` broker for all that a client does."""
        self._registry = registry
        self._metadata = metadata
        self._world = world
        self._zone = zone
        self._rule = rule
        self._own: Broker | None = None
        self._is_leaving = False
        self._live: Sequence[Broker] = ()
        self._read_s: float | None = None
        self._reading = SingleFlight[None, None]()
        self.cluster_id = ""
        """Of 22 characters; known once this gateway has joined."""

    async def join(self, host: str, port: int) -> Broker:
        """Be a broker at this address from now on; return it with its node id."""
        item, node_id = await membership.join(self._metadata, self._world, host, port)
        self.cluster_id = item.cluster_id
        self._own = Broker(node_id, host, port, self._zone)
        self._registry.kafka = KafkaAddress(node_id, host, port, self._zone)
        self._is_leaving = False
        return self._own

    def leave(self) -> None:
        """Be named no longer, unless there is no other broker; the next heartbeat says so."""
        self._is_leaving = True
        self._registry.kafka = None

    @property
    def own(self) -> Broker:
        assert self._own is not None, "a gateway joins before it serves"
        return self._own

    async def live(self) -> Sequence[Broker]:
        """Return at least one broker, ordered by node id; the first is called the controller."""
        now_s = self._world.monotonic_s()
        if self._read_s is None or now_s - self._read_s > LIVE_AGE_S:
            await self._reading.do(None, self._read)
        found = {broker.node_id: broker for broker in self._live}
        if self._own is not None:
            if not self._is_leaving:
                found[self._own.node_id] = self._own
            elif len(found) > 1:
                found.pop(self._own.node_id, None)
            elif not found:
                found[self._own.node_id] = self._own
        return sorted(found.values())

    async def _read(self) -> None:
        began_s = self._world.monotonic_s()
        try:
            items = await self._registry.gateways()
        except RiachoError:
            # The last list is the best guess; the calls of clients will report the store.
            self._read_s = began_s
            return
        self._live = [
            Broker(a.node_id, a.host, a.port, a.zone)
            for item in items
            if (a := item.kafka) is not None
        ]
        self._read_s = began_s

    async def coordinator(self, key: str) -> Broker:
        """Return the broker that should handle the calls of a group or a transactional id."""
        return chosen(key.encode(), await self.live())

    async def leaders(self, client_id: str) -> "Leaders":
        """Return who leads what, for this client."""
        live = await self.live()
        return Leaders(near(live, zone_of(client_id)), client_id if self._rule == "one" else None)


class Leaders:
    """Who leads what, for one client and one answer."""

    def __init__(self, brokers: Sequence[Broker], only_for: str | None) -> None:
        self._brokers = brokers
        self._only = None if only_for is None else chosen(only_for.encode(), brokers)
        self._by_lane: dict[tuple[bytes, int], Broker] = {}

    def of_lane(self, topic: Topic, lane: int) -> Broker:
        if self._only is not None:
            return self._only
        place = topic.topic_id, lane
        found = self._by_lane.get(place)
        if found is None:
            found = self._by_lane[place] = chosen(lane_key(*place), self._brokers)
        return found

    def of(self, topic: Topic, partition: PartitionNumber) -> Broker:
        return self.of_lane(topic, topic.lane_of(partition)[0])


def brokers_of(gateway: Gateway, registry: LiveGateways) -> Brokers:
    """Return the brokers of a gateway that has not joined them yet, as its settings have it."""
    settings = gateway.settings
    return Brokers(
        registry,
        gateway.metadata,
        gateway.world,
        zone=settings.kafka_zone,
        rule=settings.kafka_leaders,
    )
