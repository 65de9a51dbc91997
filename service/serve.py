"""Running the gateway as a process: uvicorn, with one thing added.

Uvicorn waits for open requests before it tells the application that it stops. A tail never
ends by itself, so the application must be told first; `_Server.shutdown` does that.
"""

import os
import socket
from pathlib import Path

import uvicorn
from uvicorn.supervisors import ChangeReload, Multiprocess

from service.app import App

SHUTDOWN_S_MAX = 30
"""Requests that are not answered by then are cut off."""


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.loaded_app
        if isinstance(app, App):
            app.drain()
        await super().shutdown(sockets)


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
) -> None:
    """Serve until told to stop. What is None comes from the environment or its default."""
    given = {
        "RIACHO_DATA": None if data is None else str(data),
        "RIACHO_ZONES": zones,
        "RIACHO_METADATA": metadata,
        "RIACHO_LOG_LEVEL": log_level,
        "RIACHO_ADVERTISED_URL": os.environ.get("RIACHO_ADVERTISED_URL", f"http://{host}:{port}"),
    }
    # Workers are processes of their own: they learn all of this from the environment.
    os.environ.update({name: value for name, value in given.items() if value is not None})
    config = uvicorn.Config(
        "service.app:create_app",
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
        timeout_keep_alive=75,
        backlog=2048,
    )
    server = _Server(config)
    if reload:
        ChangeReload(config, target=server.run, sockets=[config.bind_socket()]).run()
    elif workers > 1:
        Multiprocess(config, target=server.run, sockets=[config.bind_socket()]).run()
    else:
        server.run()
