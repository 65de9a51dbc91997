"""The listener: sockets, connections that are idle for too long, and the end of all of them."""

import asyncio
import logging
import socket
import ssl
from typing import Final

from service.kafka.listener.address import (
    BACKLOG,
    HostPort,
    advertised_address,
    bound,
    own_port_after,
)
from service.kafka.listener.connection import (
    UNSENT_BYTES_ALL_MAX,
    KafkaConnection,
    Shared,
)

log = logging.getLogger("riacho.kafka")

LOOK_S: Final = 5.0
"""How often to look for connections that are idle for too long."""

HANDSHAKE_S_MAX: Final = 20.0
"""Maximum duration of the handshake of TLS."""

UNREAD_S_MAX: Final = 15.0
"""How long a client may read nothing of its replies while all of them leave too much unread."""

DRAIN_STEP_S: Final = 0.02


class Listener:
    """Serves `shared.dispatch` at one address, or at two."""

    def __init__(self, shared: Shared, context: ssl.SSLContext | None = None) -> None:
        self._shared = shared
        self._context = context
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for listening in sockets:
            server = await loop.create_server(
                lambda: KafkaConnection(self._shared),
                sock=listening,
                backlog=BACKLOG,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S_MAX,
            )
            self._servers.append(server)
        self._timer = loop.call_later(LOOK_S, self._look)

    async def stop(self, within_s: float) -> None:
        """Accept no more, answer what is under way, and close all connections.

        Connections without a request are closed at once, others after their replies, and those
        that have not ended `within_s` without.
        """
        shared = self._shared
        shared.is_draining = True
        for server in self._servers:
            server.close()
        if self._timer is not None:
            self._timer.cancel()
        ends_s = shared.monotonic_s() + within_s
        while shared.connections:
            is_late = shared.monotonic_s() >= ends_s
            for connection in list(shared.connections):
                if is_late:
                    connection.abort()
                elif connection.is_quiet:
                    connection.close()
            await asyncio.sleep(DRAIN_STEP_S)
        shared.room.close()

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._shared.connections)

    def _look(self) -> None:
        """Close connections that are idle for too long: one timer for all of them."""
        shared = self._shared
        now_s, limits = shared.monotonic_s(), shared.limits
        is_scarce = shared.unsent_bytes > UNSENT_BYTES_ALL_MAX
        unread_s = min(limits.idle_s, UNREAD_S_MAX) if is_scarce else limits.idle_s
        for connection in list(shared.connections):
            silent_s = now_s - connection.last_s
            if (
                not connection.session.is_authenticated
                and now_s - connection.began_s > limits.login_s
            ):
                connection.abort()
            elif connection.is_stalled(now_s):
                log.info("kafka: %s does not send the rest of a request", connection.peer.host)
                connection.abort()
            elif connection.is_quiet and silent_s > limits.idle_s:
                connection.close()
            elif connection.is_unread and silent_s > unread_s:
                log.info("kafka: %s does not read its replies", connection.peer.host)
                connection.abort()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


def open_sockets(
    address: HostPort, advertised: str, *, is_shared: bool
) -> tuple[list[socket.socket], HostPort]:
    """Return sockets that listen at `address`, and what to advertise.

    Where several processes share the address, each has a port of its own besides, which it
    advertises: so what clients send to this one of them gets there. Raises `InvalidConfig`.
    """
    sockets = [bound(address, shares_port=is_shared)]
    if is_shared:
        sockets.append(own_port_after(address))
    own_port = int(sockets[-1].getsockname()[1])
    if not address.port:
        address = HostPort(address.host, own_port)
    return sockets, advertised_address(address, own_port, advertised)
