"""Assembly: the only place where parts are chosen and connected."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.connect.rest.late import LateConnect
from service.controller.live_gateways import LiveGateways, stop
from service.groups.classic.coordinator import limits_of
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.groups.upkeep import GroupUpkeep
from service.http.access_log import AccessLog
from service.http.hosting import hosting
from service.http.json_requests import check_json
from service.http.metrics import Metrics
from service.http.records_response import OwnedShares
from service.http.routing import Endpoint, Router, Served, direct
from service.log.gateway import Gateway
from service.process.freed_memory import keep_freed_memory
from service.process.logs import AccessLines, configure_audit_log, configure_logging
from service.process.store_watch import StoreWatch
from service.process.stores import (
    DEFAULT_ZONE,
    is_in_memory,
    open_table,
    open_zones,
    with_rebalance_delay,
    with_small_batches,
)
from service.process.version import VERSION
from service.process.without_pandas import refuse_pandas
from service.registry.edge.late import LateSchemas
from service.registry.served import in_context
from service.routes.access.quotas import QuotaRoutes
from service.routes.access.security import SecurityRoutes
from service.routes.fetch import FetchRoutes
from service.routes.groups import GroupRoutes
from service.routes.multi_fetch import MultiFetch
from service.routes.produce import ProduceRoutes
from service.routes.route import Handlers, Route
from service.routes.segments import SegmentRoutes
from service.routes.table import PAGES, PAGES_NEED, ROUTES
from service.routes.transactions import TransactionRoutes
from service.security.assembly import Security, secured
from service.security.quotas.upkeep import QuotaUpkeep
from service.settings import Settings
from service.transactions.atomic import Atomic
from service.transactions.fences import Fences
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.transactions import Transactions
from service.transactions.upkeep import TransactionUpkeep
from service.world.clock import World, real_world
from storage.errors import RequestTooLarge

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.controller.controller import Controller
    from service.kafka.door import KafkaDoor

log = logging.getLogger("riacho.app")

ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
"""Maximum body of a call that FastAPI serves."""


class App:
    """The whole gateway as one ASGI application."""

    def __init__(
        self,
        gateway: Gateway,
        registry: LiveGateways,
        metrics: Metrics,
        lines: AccessLines | None = None,
        wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app,
        security: Security | None = None,
    ) -> None:
        """Serve `gateway`; `wrap` keeps the application within the limits of its host.

        Without `security` every caller may do everything.
        """
        self.gateway, self._security, self._registry = gateway, security, registry
        producer_ids = ProducerIds(gateway.metadata, gateway.world)
        transaction_items = TransactionItems(gateway.metadata, producer_ids, gateway.world)
        staging = Staging(gateway, transaction_items)
        fences = Fences(producer_ids, transaction_items)
        schemas = LateSchemas(gateway)
        self._produce = ProduceRoutes(gateway, staging, fences, metrics, schemas)
        coordinator = Coordinator(
            gateway.metadata, gateway.topics, gateway.world, limits_of(gateway.settings)
        )
        offsets = Offsets(gateway.metadata, gateway.topics, coordinator, gateway.world)
        self._upkeep = GroupUpkeep(coordinator, offsets, gateway.settings, gateway.world)
        groups = GroupRoutes(gateway, coordinator, offsets, MultiFetch(gateway, metrics, schemas))
        all_transactions = Transactions(gateway, offsets, producer_ids, transaction_items)
        transactions = TransactionRoutes(
            gateway,
            all_transactions,
            Atomic(gateway, offsets),
            producer_ids,
            transaction_items,
            metrics,
        )
        self._transaction_upkeep = TransactionUpkeep(
            gateway.metadata, transaction_items, gateway.settings, gateway.world
        )
        self._quota_upkeep = QuotaUpkeep(gateway.metadata, gateway.settings, gateway.world)
        view = None if security is None else security.view
        self._handlers = Handlers(
            gateway=gateway,
            registry=registry,
            metrics=metrics,
            produce=self._produce,
            fetch=FetchRoutes(gateway, metrics, schemas),
            groups=groups,
            transactions=transactions,
            security=SecurityRoutes(gateway, view),
            quotas=QuotaRoutes(gateway, view),
            segments=SegmentRoutes(gateway),
            late_schemas=schemas,
            late_connect=LateConnect(gateway, coordinator, offsets),
        )
        self._shared: dict[str, Any] = {
            "gateway": gateway,
            "registry": registry,
            "metrics": metrics,
            "coordinator": coordinator,
            "offsets": offsets,
            "producer_ids": producer_ids,
            "transaction_items": transaction_items,
            "transactions": all_transactions,
            "fences": fences,
            "staging": staging,
            "security": security,
        }
        """What all doors work with."""
        metrics.watch(gateway)
        self._lines = lines
        served = OwnedShares(self._router(), gateway.outgoing)
        self._asgi: ASGIApp = AccessLog(wrap(served), metrics, gateway.world, lines)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    def _router(self) -> Router:
        """Return what serves every route of the table."""
        bounded = _BoundedBodies(self._administer)
        pages = [Served("GET", path, bounded, needs=PAGES_NEED) for path in PAGES]
        served = [
            Served(
                route.method,
                route.path,
                bounded if route.by_fastapi else direct(route.handler(self._handlers)),
                route.query,
                route.needs,
            )
            for route in ROUTES
            if route.api is None
        ]
        served += [
            Served(
                route.method,
                path,
                route.api.served(self._when_called(route)),
                route.query,
                route.needs,
                route.api.failed,
            )
            for route in ROUTES
            if route.api is not None
            for path in route.api.paths_of(route.path)
        ]
        door = None if self._security is None else self._security.door
        return Router([*served, *pages], self._administer, door, in_context)

    def _when_called(self, route: Route) -> Endpoint:
        """Return the handler of a route, whose modules are imported by its first call."""
        return lambda request: route.handler(self._handlers)(request)

    @cached_property
    def fastapi(self) -> "FastAPI":
        """The administrative half, created on first use: a cold start does not need it."""
        from service.routes.administration import Administration

        return Administration(self._handlers, self._lifespan)

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.fastapi(scope, receive, send)

    def _controller(self) -> "Controller":
        # Imported here: only a long-lived gateway has one, and a function need not load it.
        from service.controller.controller import Controller

        return Controller(
            self.gateway.settings,
            self.gateway.zones,
            self.gateway.metadata,
            self.gateway.topics,
            self.gateway.world,
            self._registry.gateway_id,
        )

    def _store_watch(self) -> StoreWatch:
        gateway = self.gateway
        return StoreWatch(gateway.zones, gateway.metadata, self._registry.beat, gateway.world)

    def _kafka_door(self) -> "KafkaDoor | None":
        """Return the door for Kafka's clients, if the settings name its address."""
        if not self.gateway.settings.kafka:
            return None
        # Imported here: functions and embedded gateways have none.
        from service.kafka.door import kafka_door
        from service.kafka.parts import Parts
        from service.security.tls.live import context_of_process

        return kafka_door(
            self.gateway,
            self._registry,
            lambda address, brokers: Parts(address=address, brokers=brokers, **self._shared),
            is_secure=self._security is not None,
            context=context_of_process(),
        )

    @asynccontextmanager
    async def _connectors(self) -> AsyncIterator[None]:
        """Run connectors in this process, if no other one can."""
        settings = self.gateway.settings
        if settings.connect != "on" or not is_in_memory(settings):
            yield
            return
        # Imported here: a gateway whose stores others see has a process for that.
        from service.connect.running.assembly import parts_of, runner_of

        parts = parts_of(self.gateway, self._shared["offsets"], self._security)
        runner = runner_of(parts)
        running = asyncio.create_task(runner.run())
        try:
            yield
        finally:
            await stop(running)
            await runner.aclose()

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        kafka = self._kafka_door()
        drain_on_signal(self.gateway.drain)
        beats = asyncio.create_task(self._registry.run())
        watching = asyncio.create_task(self._store_watch().run())
        upkeep = asyncio.create_task(self._upkeep.run())
        transaction_upkeep = asyncio.create_task(self._transaction_upkeep.run())
        quota_upkeep = asyncio.create_task(self._quota_upkeep.run())
        controller = self._controller()
        controlling = asyncio.create_task(controller.run())
        serving_kafka = None if kafka is None else asyncio.create_task(kafka.run())
        log.info("%s", describe(self.gateway.settings))
        async with self._connectors():
            yield
            log.info("stopping: answering what is held")
        # Answer everything that is held, then deregister, then close the stores.
        self.gateway.drain()
        if kafka is not None and serving_kafka is not None:
            await stop(serving_kafka)
            await kafka.stop()
        await self._produce.aclose()
        if self._security is not None:
            await self._security.audit.aclose()
        await self.gateway.batcher.aclose()
        await stop(watching)
        await stop(upkeep)
        await stop(transaction_upkeep)
        await stop(quota_upkeep)
        await stop(beats)
        await stop(controlling)
        await controller.leave()
        await self._registry.leave()
        await self.gateway.aclose()
        if self._lines is not None:
            self._lines.flush()


def describe(settings: Settings) -> str:
    """Return a summary for the operator who started the gateway."""
    url = settings.advertised_url or "(an address of the server's choice)"
    zones = settings.zones or f"{DEFAULT_ZONE}={settings.data / 'zones' / DEFAULT_ZONE}"
    table = settings.metadata or f"sqlite:///{settings.data / 'metadata.db'}"
    return f"Riacho {VERSION} serves {url} (docs at {url}/docs; zones {zones}; metadata {table})"


def drain_on_signal(drain: Callable[[], None]) -> None:
    """Call `drain` as soon as the process is signalled to stop.

    The server waits for open requests before it notifies the application, and a tail never ends
    by itself. So this handles the signal, too, and then calls the server's own handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        others = signal.getsignal(number)

        def handle(signum: int, frame: FrameType | None, others: Any = others) -> None:
            loop.call_soon_threadsafe(drain)
            if callable(others):
                others(signum, frame)

        signal.signal(number, handle)


class _BoundedBodies:
    """Accepts only JSON bodies for administrative calls, and only up to a limit."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in {"POST", "PATCH", "PUT"}:
            check_json(Headers(scope=scope).get("content-type"))
            # Read here: FastAPI reports any error raised while it reads as invalid JSON.
            receive = _again(await _messages(receive), receive)
        await self._app(scope, receive, send)


async def _messages(receive: Receive) -> list[Message]:
    """Return the messages of a whole body, or raise `RequestTooLarge`."""
    messages: list[Message] = []
    size_bytes = 0
    while not messages or messages[-1].get("more_body", False):
        messages.append(await receive())
        size_bytes += len(messages[-1].get("body", b""))
        if size_bytes > ADMIN_BODY_BYTES_MAX:
            raise RequestTooLarge(
                f"the body has more than {ADMIN_BODY_BYTES_MAX} bytes, the limit for this call"
            )
    return messages


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that repeats `messages` and then continues."""
    left = iter(messages)

    async def again() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return again


def create_app(settings: Settings | None = None, world: World | None = None) -> App:
    """Return the gateway that the settings or the environment describe, ready to serve."""
    refuse_pandas()
    keep_freed_memory()
    settings = with_rebalance_delay(with_small_batches(settings or Settings()))
    host = hosting(settings, world or real_world())
    lines = configure_logging(
        settings.log_level, settings.log_format, lines_at_once=not host.buffers_lines
    )
    metadata = open_table(settings, host.world)
    zones = open_zones(settings)
    gateway = Gateway(settings, zones, metadata, host.world, news_s=host.news_s)
    registry = LiveGateways(settings, metadata, host.world, zones)
    security = None
    if settings.security == "on":
        configure_audit_log(settings.audit or "on")
        security = secured(settings, metadata, host.world)
        if settings.audit_topic:
            # Imported here: a gateway without such a topic does without.
            from service.security.audit.topic import AuditTopic

            security.audit.also_to(AuditTopic(gateway, settings.audit_topic))
    return App(gateway, registry, host.metrics, lines, host.wrap, security)
