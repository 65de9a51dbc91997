"""Routes about the deployment: who is there, and is this one well."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from service.gateway import Gateway
from service.metrics import Metrics
from service.registry import Registry
from service.requests import Query
from service.version import VERSION
from storage.errors import ShuttingDown


class GatewayInfo(BaseModel):
    id: str
    url: str
    host: str
    pid: int
    version: str
    started_ms: int
    beat_ms: int


class ZoneInfo(BaseModel):
    name: str
    kind: str


class Cluster(BaseModel):
    version: str
    gateway: str
    gateways: list[GatewayInfo]
    zones: list[ZoneInfo]
    controller: str | None


class Health(BaseModel):
    status: str


def router(gateway: Gateway, registry: Registry, metrics: Metrics) -> APIRouter:
    """Return the routes that tell about gateways, zones and health."""
    routes = APIRouter(tags=["cluster"])

    @routes.get("/v1/cluster")
    async def describe_cluster(request: Request) -> Cluster:
        """Return the gateways that are up, the zones, and the version."""
        Query(request, ())
        gateways = await registry.gateways()
        return Cluster(
            version=VERSION,
            gateway=registry.gateway_id,
            gateways=[GatewayInfo.model_validate(g, from_attributes=True) for g in gateways],
            zones=[
                ZoneInfo(name=name, kind=type(gateway.zones.store(name)).__name__)
                for name in gateway.zones.names
            ],
            controller=None,
        )

    @routes.get("/healthy")
    async def healthy() -> Health:
        """Answer if the process runs at all."""
        return Health(status="ok")

    @routes.get("/ready")
    async def ready() -> Health:
        """Answer if the metadata store does, and this gateway is not shutting down."""
        if gateway.draining.is_set():
            raise ShuttingDown("this gateway is shutting down")
        await gateway.metadata.get("topic/-")
        return Health(status="ok")

    @routes.get("/metrics", response_class=Response)
    async def show_metrics() -> Any:
        """Return counters in Prometheus' text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes
