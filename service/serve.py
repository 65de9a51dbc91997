"""Run the gateway as one process or several."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from service.jobs.schedule import Maintenance
from service.process.logs import configure_logging
from service.settings import Settings
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from service.app import App

SHUTDOWN_S_MAX: Final = 30
"""Maximum time to finish requests at shutdown; then they are cut off."""

KEEP_ALIVE_S: Final = 75
"""Longer than load balancers keep a connection, so that the gateway never closes first."""


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def run(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    data: Path | None = None,
    zones: str | None = None,
    metadata: str | None = None,
    workers: int = 1,
    reload: bool = False,
    log_level: str | None = None,
    maintain_every: str | None = None,
    app: str = "service.serve:lasting_app",
) -> None:
    """Serve until signalled to stop. None means the value from the environment, or its default.

    `app` names the function that creates the application, in every worker.
    """
    port = port or _free_port(host)
    given = {
        "RIACHO_DATA": None if data is None else str(data),
        "RIACHO_ZONES": zones,
        "RIACHO_METADATA": metadata,
        "RIACHO_LOG_LEVEL": log_level,
        "RIACHO_MAINTAIN_EVERY": maintain_every,
        "RIACHO_ADVERTISED_URL": os.environ.get("RIACHO_ADVERTISED_URL", f"http://{host}:{port}"),
    }
    # Workers are separate processes: they get all of this from the environment.
    os.environ.update({name: value for name, value in given.items() if value is not None})
    # After a graceful stop the server raises the signal again; stopping on request is not a
    # failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _maintained():
        uvicorn.run(
            app,
            factory=True,
            host=host,
            port=port,
            workers=workers,
            reload=reload,
            log_level="warning",
            access_log=False,
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
        )


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
def _maintained() -> Iterator[None]:
    """Schedule maintenance at the configured interval: once, not in every worker."""
    settings = Settings()
    every_s = settings.maintain_every_s
    if every_s is None:
        yield
        return
    if "memory:" in settings.zones + settings.metadata:
        raise InvalidConfig(
            "RIACHO_MAINTAIN_EVERY: the maintenance process cannot see stores that are in memory"
        )
    configure_logging(settings.log_level, settings.log_format)
    maintenance = Maintenance(every_s)
    maintenance.start()
    try:
        yield
    finally:
        maintenance.stop()
