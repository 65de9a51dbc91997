"""Run the gateway as one process or several."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from service.jobs.schedule import Maintenance
from service.process.limits.heads import BoundedProtocol
from service.process.logs import configure_logging
from service.process.stores import is_in_memory
from service.security.tls.listening import FIRST_KEY, ON, Listening
from service.settings import Settings
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from service.app import App

log = logging.getLogger("riacho.serve")

SHUTDOWN_S_MAX: Final = 30
"""Maximum time to finish requests at shutdown; then they are cut off."""

KEEP_ALIVE_S: Final = 75
"""Longer than load balancers keep a connection, so that the gateway never closes first."""


def run(
    where: Listening,
    *,
    data: Path | None = None,
    zones: str | None = None,
    metadata: str | None = None,
    workers: int = 1,
    reload: bool = False,
    log_level: str | None = None,
    maintain_every: str | None = None,
    app: str = "service.serve:lasting_app",
) -> None:
    """Serve at `where` until signalled to stop. None: from the environment, or its default.

    `app` names the function that creates the application, in every worker.
    """
    given = {
        "RIACHO_DATA": None if data is None else str(data),
        "RIACHO_ZONES": zones,
        "RIACHO_METADATA": metadata,
        "RIACHO_LOG_LEVEL": log_level,
        "RIACHO_MAINTAIN_EVERY": maintain_every,
        "RIACHO_ADVERTISED_URL": os.environ.get("RIACHO_ADVERTISED_URL", where.url),
        "RIACHO_SECURITY": where.security,
        "RIACHO_INSECURE": "1" if where.insecure else None,
        "RIACHO_WORKERS": str(workers),
        "RIACHO_KAFKA": where.kafka or None,
        "RIACHO_CONNECT": os.environ.get("RIACHO_CONNECT") or "on",
    }
    # Workers are separate processes: they get all of this from the environment.
    os.environ.update({name: value for name, value in given.items() if value is not None})
    # After a graceful stop the server raises the signal again; stopping on request is not a
    # failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    _warn(where)
    with _maintained(settings), _connected(settings):
        uvicorn.run(
            app,
            factory=True,
            host=where.host,
            port=where.port,
            workers=workers,
            reload=reload,
            log_level="warning",
            access_log=False,
            interface="asgi3",
            ws="none",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            **_protocol(where),
        )


def _warn(where: Listening) -> None:
    for warning in where.warnings:
        log.warning("%s", warning)
    if where.security == ON:
        log.info("security is on; with access to the stores, `%s` makes a first key", FIRST_KEY)


def _protocol(where: Listening) -> dict[str, Any]:
    """Return what the server is told about connections; it passes it on to its workers."""
    if where.tls is None:
        return {"http": BoundedProtocol}
    # Imported here: a process without TLS has no use for it.
    from service.security.tls.live import serving_context
    from service.security.tls.protocol import TlsProtocol

    return {"ssl_context_factory": partial(serving_context, where.tls), "http": TlsProtocol}


def lasting_app() -> "App":
    """Return the gateway of a process that serves nothing else until it ends.

    Its few hundred thousand objects are hidden from the garbage collector, which would otherwise
    scan all of them every few ten thousand requests and delay a request by 30 ms.
    """
    # Imported here: with several workers, the parent process does not need it.
    from service.app import create_app
    from service.process.freed_memory import return_memory_when_quiet

    app = create_app()
    gateway = app.gateway
    return_memory_when_quiet(lambda: gateway.admission.held_bytes + gateway.outgoing.held_bytes)
    gc.collect()
    gc.freeze()
    return app


@contextmanager
def _maintained(settings: Settings) -> Iterator[None]:
    """Schedule maintenance at the configured interval: once, not in every worker."""
    every_s = settings.maintain_every_s
    if every_s is None:
        yield
        return
    if is_in_memory(settings):
        raise InvalidConfig(
            "RIACHO_MAINTAIN_EVERY: the maintenance process cannot see stores that are in memory"
        )
    maintenance = Maintenance(every_s)
    maintenance.start()
    try:
        yield
    finally:
        maintenance.stop()


@contextmanager
def _connected(settings: Settings) -> Iterator[None]:
    """Run connectors in a process of its own while there are some: one, not one per worker."""
    if settings.connect != "on" or is_in_memory(settings):
        yield
        return
    # Imported here: a gateway that runs none does without.
    from service.connect.running.beside import Beside

    beside = Beside(settings)
    beside.start()
    try:
        yield
    finally:
        beside.stop()
