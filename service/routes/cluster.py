"""Routes about the deployment: gateways, zones, and the health of this gateway."""

from typing import Final

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.controller import verification
from service.controller.controller import LEASE
from service.controller.live_gateways import LiveGateways
from service.controller.survey import Counts, Survey, ZoneCounts, zones_of
from service.http.metrics import Metrics
from service.http.requests import Query
from service.log.gateway import Gateway
from service.process.store_watch import obstacle
from service.process.version import VERSION
from storage import keys, leases
from storage.errors import Corrupt, ShuttingDown, StoreUnavailable
from storage.stores.objects import ObjectStore
from storage.zones.items import ZoneItem

_KINDS: Final = {"DirectoryObjects": "directory", "S3Objects": "s3", "MemoryObjects": "memory"}
"""By class name, because importing the class would import the SDK of an unused store."""


class BrokerInfo(BaseModel):
    node_id: int = Field(description="as which broker Kafka's clients know the gateway")
    host: str
    port: int


class GatewayInfo(BaseModel):
    id: str
    url: str
    host: str
    pid: int
    version: str
    started_ms: int
    beat_ms: int
    failing: list[str] = Field(description="zones that this gateway could not use lately")
    kafka: BrokerInfo | None = Field(
        description="where Kafka's clients connect; null: it does not listen for them"
    )


class ResyncInfo(BaseModel):
    lanes_behind: int
    objects_checked: int
    objects_copied: int
    bytes_copied: int
    lost: int = Field(description="objects that no zone holds any more")
    lost_keys: list[str] = Field(description="the first of them")
    error: str = Field(description="what keeps it from going on; empty if nothing does")


class ZoneInfo(BaseModel):
    name: str
    kind: str | None = Field(
        description="directory, s3, memory or other; null: not configured at this gateway"
    )
    state: str = Field(description="online, offline, or wiped: it has lost what it held")
    since_ms: int = Field(description="when it came into this state; 0: it was never in another")
    reason: str
    is_whole: bool = Field(description="false while what it has lost is copied back")
    latency_ms: int = Field(description="of a probe: a write, two reads, a removal; 0: none")
    leaders: int = Field(description="partitions that are led by this zone")
    replicas: int = Field(description="partitions that have a replica here")
    in_sync: int = Field(description="those of them that are in sync")
    resync: ResyncInfo | None = Field(description="how far it is with catching up")


class VerificationInfo(BaseModel):
    began_ms: int
    finished_ms: int = Field(description="0: the pass goes on")
    passes: int = Field(description="passes that were finished")
    objects: int = Field(description="objects that this pass has looked for in zones in sync")
    skipped: int = Field(description="lanes that this pass gave up, as they could not be read")
    repaired: int = Field(description="copies that zones in sync lacked and got, in all passes")
    lost: int = Field(description="objects that no zone holds any more, as this pass found")
    lost_keys: list[str] = Field(description="the first of them")


class PartitionCounts(BaseModel):
    count: int
    under_replicated: int = Field(description="not all replicas are in sync")
    under_min_isr: int = Field(description="fewer are in sync than min.insync.replicas")
    offline: int = Field(description="none of those in sync can be reached")
    reassigning: int = Field(description="replicas are being moved")


class Cluster(BaseModel):
    version: str
    gateway: str
    gateways: list[GatewayInfo]
    controller: str | None = Field(description="id of the gateway that is the controller")
    controller_epoch: int | None = Field(description="how many controllers there were")
    zones: list[ZoneInfo]
    topics: int
    partitions: PartitionCounts
    verification: VerificationInfo | None = Field(
        description="the last pass over what zones in sync should hold; null: none has begun"
    )


class Health(BaseModel):
    status: str


class ClusterRoutes:
    def __init__(self, gateway: Gateway, registry: LiveGateways, metrics: Metrics) -> None:
        self._gateway = gateway
        self._registry = registry
        self._metrics = metrics
        self._survey = Survey(gateway.metadata, gateway.topics)

    async def describe_cluster(self, request: Request) -> Cluster:
        """Return gateways, the controller, zones and their health, and how partitions are."""
        Query(request)
        gateway, registry = self._gateway, self._registry
        gateways = await registry.gateways()
        controller = await leases.current(gateway.metadata, LEASE)
        items, counts = await zones_of(gateway.metadata), await self._survey.counts()
        verified = await verification.current(gateway.metadata)
        names = dict.fromkeys([*gateway.zones.names, *sorted({*items, *counts.zones})])
        return Cluster(
            version=VERSION,
            gateway=registry.gateway_id,
            gateways=[GatewayInfo.model_validate(g, from_attributes=True) for g in gateways],
            controller=None if controller is None else controller.holder,
            controller_epoch=None if controller is None else controller.epoch,
            zones=[_zone_info(gateway, name, items.get(name), counts) for name in names],
            topics=counts.topics,
            partitions=PartitionCounts(
                count=counts.partitions,
                under_replicated=counts.under_replicated,
                under_min_isr=counts.under_min_isr,
                offline=counts.offline,
                reassigning=counts.reassigning,
            ),
            verification=None
            if verified is None
            else VerificationInfo.model_validate(verified, from_attributes=True),
        )

    async def healthy(self) -> Health:
        """Answer if the process runs at all."""
        return Health(status="ok")

    async def ready(self) -> Health:
        """Answer if the stores can be used, and this gateway is not shutting down.

        They cannot if the metadata store does not answer, if its file is damaged, or if a disk is
        full or fails, a process holds the lock or there are no descriptors, so that writes fail.
        """
        gateway = self._gateway
        if gateway.draining.is_set():
            raise ShuttingDown("this gateway is shutting down")
        if reason := obstacle(gateway.zones, gateway.metadata):
            raise StoreUnavailable(f"writes fail here: {reason}")
        try:
            await gateway.metadata.get(keys.topic("-"))
        except Corrupt as error:
            raise StoreUnavailable(f"the metadata table is damaged: {error}") from error
        return Health(status="ok")

    async def show_metrics(self) -> Response:
        """Return counters in Prometheus' text format."""
        return Response(
            self._metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


def _zone_info(gateway: Gateway, name: str, item: ZoneItem | None, counts: Counts) -> ZoneInfo:
    is_here = name in gateway.zones.names
    if item is None:
        # No gateway probes it, so report what this gateway sees.
        failing = is_here and gateway.zones.is_avoided(name)
        reason = gateway.zones.health[name].last_error if failing else ""
        item = ZoneItem(name=name, state="offline" if failing else "online", reason=reason)
    number = counts.zones.get(name, ZoneCounts())
    resync = item.resync
    return ZoneInfo(
        name=name,
        kind=_kind(gateway.zones.store(name)) if is_here else None,
        state=item.state,
        since_ms=item.since_ms,
        reason=item.reason,
        is_whole=item.is_whole,
        latency_ms=item.latency_ms,
        leaders=number.leaders,
        replicas=number.replicas,
        in_sync=number.in_sync,
        resync=None if resync is None else ResyncInfo.model_validate(resync, from_attributes=True),
    )


def _kind(store: ObjectStore) -> str:
    names = (base.__name__ for base in type(store).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), "other")
