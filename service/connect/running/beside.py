"""A runner beside a gateway: a process that is there while there are connectors.

`riacho serve` has one, whatever its number of workers. A thread looks at the list of connectors, of
which it reads one; the process is started when there is one, and started again, with back-off, when
it dies. It ends by itself when there has been no connector for a while. So a deployment without
connectors pays for one small read every `LOOK_S`, and for no process.

A process that follows one that died has the same name as a holder of leases: that one is dead for
certain, so its tasks need not wait until its leases expire.

The child's stdin is a pipe that this process never writes to. The child stops at its end, so it
ends when this process does, for whatever reason.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from service.process.stores import open_table
from service.settings import Settings
from service.world.clock import World, real_world
from storage import keys
from storage.errors import RiachoError
from storage.stores.metadata import MetadataStore

log: Final = logging.getLogger("riacho.connect")

COMMAND: Final = (
    *(sys.executable, "-m", "service.connect.running"),
    *("--until-eof", "--until-idle"),
)

LOOK_S: Final = 2.0
RESTART_S_MIN: Final = 0.2
RESTART_S_MAX: Final = 10.0
STEADY_S: Final = 5.0
"""A process that has lasted this long is restarted at once."""

STOP_S_MAX: Final = 25.0
"""A process that has not stopped by then is killed; others take its tasks when leases expire."""


class Beside:
    """Keeps a runner going while there are connectors."""

    def __init__(
        self, settings: Settings, command: Sequence[str] = COMMAND, world: World | None = None
    ) -> None:
        self._settings = settings
        self._command = command
        self._world = world or real_world()
        self._holder = self._world.random_bytes(8).hex()
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="connect", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the process, and wait for it to end."""
        self._stopping.set()
        with self._turn:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(LOOK_S)

    def _run(self) -> None:
        # The gateway starts first, and makes the table if there is none.
        wait_s, pause_s = LOOK_S, 0.0
        while not self._stopping.wait(wait_s):
            try:
                asyncio.run(self._until_needed())
                lasted_s = self._once()
            except RiachoError as error:
                log.warning("connectors cannot be looked at: %s", error)
                lasted_s = 0.0
            except Exception:
                log.exception("the runner of connectors could not be started")
                lasted_s = 0.0
            wait_s = pause_s = next_pause_s(pause_s, lasted_s)

    async def _until_needed(self) -> None:
        """Return when there is a connector, or this process stops."""
        metadata = open_table(self._settings, self._world)
        try:
            while not self._stopping.is_set() and not await _is_any(metadata):
                await asyncio.to_thread(self._stopping.wait, LOOK_S)
        finally:
            await metadata.close()

    def _once(self) -> float | None:
        """Run the process to its end; return how long it lasted. None: it had nothing to do."""
        began_s = self._world.monotonic_s()
        with self._turn:
            if self._stopping.is_set():
                return None
            # What `serve` was told is in the environment of this process.
            self._process = process = subprocess.Popen(
                [*self._command, "--holder", self._holder],
                stdin=subprocess.PIPE,
                env={**os.environ, "RIACHO_KAFKA": "off"},
            )
        try:
            code = process.wait()
        finally:
            with self._turn:
                self._process = None
            if process.stdin is not None:
                process.stdin.close()
        if code and not self._stopping.is_set():
            log.warning("the runner of connectors ended with exit code %d; it is restarted", code)
        return None if code == 0 else self._world.monotonic_s() - began_s


def next_pause_s(pause_s: float, lasted_s: float | None) -> float:
    """Return the pause before the next start, from the one before and how long the process lasted.

    None: it has ended by itself.
    """
    if lasted_s is None or lasted_s > STEADY_S:
        return 0.0
    return min(RESTART_S_MAX, max(RESTART_S_MIN, pause_s * 2))


async def _is_any(metadata: MetadataStore) -> bool:
    try:
        return bool(await metadata.list(keys.CONNECTORS, limit=1))
    except RiachoError as error:
        log.info("connectors cannot be listed: %s", error)
        return False
