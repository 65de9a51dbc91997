"""The Kafka door of a gateway, opened and closed: the only place where its parts are connected."""

import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from service.controller.live_gateways import LiveGateways
from service.kafka.brokers.brokers import Brokers, brokers_of
from service.kafka.call import Peer
from service.kafka.listener.address import (
    BrokerAddress,
    HostPort,
    is_default,
    is_free,
    taken,
    wanted_address,
)
from service.kafka.listener.connection import ConnectionLimits, Shared
from service.kafka.listener.dispatch import Dispatch
from service.kafka.listener.listener import Listener, open_sockets
from service.kafka.listener.room import Room
from service.kafka.listener.session import Doorkeeper, OpenSession, PeerSession
from service.kafka.parts import Parts
from service.kafka.table import handlers
from service.log.gateway import Gateway
from service.security.tls.listening import is_local
from storage.errors import RiachoError

log = logging.getLogger("riacho.kafka")

STOP_S_MAX: Final = 20.0
"""Maximum time to finish requests at shutdown; then they are cut off."""

MOVE_S: Final = 1.0
"""How long clients are told at shutdown to go to other gateways, if there are any."""

JOIN_EVERY_S: Final = 1.0
"""How often to try again to become a broker while the table does not answer."""

PROTOCOLS: Final = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}

MOVE_STEP_S: Final = 0.05

MakeParts = Callable[[BrokerAddress, Brokers], Parts]


class KafkaDoor:
    """Listens from the beginning, and serves as soon as this gateway is a broker."""

    def __init__(
        self,
        gateway: Gateway,
        registry: LiveGateways,
        make_parts: MakeParts,
        address: BrokerAddress,
        sockets: list[socket.socket],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        """What clients are told."""
        self._gateway = gateway
        self._registry = registry
        self._brokers = brokers_of(gateway, registry)
        self._make_parts = make_parts
        self._sockets = sockets
        self._context = context
        self._listener: Listener | None = None

    async def run(self) -> None:
        """Serve until cancelled; from the moment at which the gateway drains, as no broker."""
        try:
            await self._serve()
        except Exception:
            log.exception("kafka: nothing listens for Kafka's clients any more")
            raise

    async def _serve(self) -> None:
        await self._join()
        parts = self._make_parts(self.address, self._brokers)
        self._listener = listener = Listener(_shared(parts), self._context)
        await self._beat()
        await listener.start(self._sockets)
        parts.metrics.watch_kafka(lambda: listener.count)
        where = HostPort(self.address.host, self.address.port)
        log.info("Kafka clients connect to %s (%s)", where, self.address.protocol)
        await self._gateway.draining.wait()
        await self._leave()

    async def stop(self) -> None:
        """Send clients to other gateways, answer what is under way, close all connections."""
        await self._leave()
        if self._listener is None:
            for each in self._sockets:
                each.close()
            return
        if any(broker != self._brokers.own for broker in await self._brokers.live()):
            # Those who ask meanwhile are told to ask another one.
            ends_s = self._gateway.world.monotonic_s() + MOVE_S
            while self._listener.count and self._gateway.world.monotonic_s() < ends_s:
                await self._gateway.world.sleep(MOVE_STEP_S)
        await self._listener.stop(STOP_S_MAX)

    async def _join(self) -> None:
        """Become a broker; while the table does not answer, try again."""
        while True:
            try:
                await self._brokers.join(self.address.host, self.address.port)
            except RiachoError as error:
                log.warning("kafka: this gateway is no broker yet: %s", error)
                await self._gateway.world.sleep(JOIN_EVERY_S)
            else:
                return

    async def _leave(self) -> None:
        if self._registry.kafka is not None:
            self._brokers.leave()
            await self._beat()

    async def _beat(self) -> None:
        if self._gateway.settings.gateway_heartbeat_s:
            with suppress(RiachoError):
                await self._registry.beat()


def kafka_door(
    gateway: Gateway,
    registry: LiveGateways,
    make_parts: MakeParts,
    *,
    is_secure: bool,
    context: ssl.SSLContext | None,
) -> KafkaDoor | None:
    """Return a door that listens where the settings say; None: nowhere.

    Raises `InvalidConfig` if the address cannot be had, unless it is only the default.
    """
    settings = gateway.settings
    address = wanted_address(settings.kafka) if settings.kafka else None
    if address is None:
        return None
    is_shared = settings.workers > 1
    if is_default(settings.kafka) and not is_free(address):
        log.warning("%s", taken(address))
        return None
    sockets, told = open_sockets(address, settings.kafka_advertised, is_shared=is_shared)
    protocol = PROTOCOLS[is_secure, context is not None]
    broker = BrokerAddress(host=told.host, port=told.port, protocol=protocol)
    return KafkaDoor(gateway, registry, make_parts, broker, sockets, context)


def _shared(parts: Parts) -> Shared:
    """Return what the connections of a gateway have in common."""
    gateway, settings = parts.gateway, parts.gateway.settings
    return Shared(
        dispatch=Dispatch(handlers(parts), parts.metrics, gateway.world.monotonic_s),
        room=Room(gateway.admission),
        limits=ConnectionLimits(
            request_bytes_max=settings.kafka_request_bytes_max,
            connections_max=settings.kafka_connections_max,
            connections_per_address_max=settings.kafka_connections_per_address_max,
            idle_s=settings.kafka_idle_s,
        ),
        monotonic_s=gateway.world.monotonic_s,
        new_session=_sessions(parts),
        protocol=parts.address.protocol,
        http_url="" if parts.security is not None else settings.advertised_url,
    )


def _sessions(parts: Parts) -> Callable[[Peer, Any], PeerSession]:
    """Return what makes the session of a connection."""
    security, settings, gateway = parts.security, parts.gateway.settings, parts.gateway
    if security is None:
        return lambda peer, connection: OpenSession()
    listens = wanted_address(settings.kafka)
    is_private = (
        parts.address.protocol == "SASL_SSL"
        or settings.insecure
        or (listens is not None and is_local(listens.host))
    )
    if not is_private:
        log.warning(
            "kafka: without TLS only SCRAM is offered, because PLAIN and OAUTHBEARER send the"
            " credential itself; --tls-cert turns TLS on, and --insecure insists"
        )
    keeper = Doorkeeper.of(
        security,
        gateway.metadata,
        gateway.world,
        has_tokens=bool(settings.jwt_issuer),
        is_private=is_private,
    )
    return keeper.session
