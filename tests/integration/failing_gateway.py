"""A gateway whose zones fail as they are told, since a test cannot break a real disk or bucket.

    python -m tests.integration.failing_gateway serve --port 8080 --data DIR --zones a,b,c

The folder `RIACHO_TEST_FAULTS` holds a file for each zone that is not well, named as the zone
is; it says how. Every call looks there, so that a test may change it at any time, for all
gateways at once. What hangs goes on when the zone is well again, as it would on a network drive.

Every transaction on the table that happened is a line in `RIACHO_TEST_FAULTS/table.log`.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from service import serve
from service.app import App
from service.controller import catch_up
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.process.logs import configure_logging
from service.process.stores import open_table, open_zones
from service.security.tls.listening import Listening
from service.settings import Settings
from service.world.clock import real_world
from storage import leases
from storage.errors import StoreUnavailable
from storage.stores.metadata import Check, Delete, MetadataStore, Op, Put, Versioned
from storage.stores.objects import Body, ObjectInfo, ObjectStore
from storage.zones.zones import Zones

FAULTS: Final = "RIACHO_TEST_FAULTS"
SLOW_S: Final = "RIACHO_TEST_SLOW_S"
SETTLE_S: Final = "RIACHO_TEST_SETTLE_S"
LOOK_S: Final = 0.05


class FaultyObjects:
    """An `ObjectStore` in front of another one, which is as well as a file says."""

    def __init__(self, inner: ObjectStore, told: Path, slow_s: float) -> None:
        self._inner = inner
        self._told = told
        self._slow_s = slow_s

    def _mode(self) -> str:
        try:
            return self._told.read_text()
        except FileNotFoundError:
            return ""

    async def _go(self, *, writes: bool = False) -> None:
        mode = self._mode()
        if mode == "denied":
            raise StoreUnavailable("permission denied")
        if mode == "full" and writes:
            raise StoreUnavailable("no space left on device")
        if mode == "slow":
            await asyncio.sleep(self._slow_s)
        while mode == "hanging":
            await asyncio.sleep(LOOK_S)
            mode = self._mode()

    async def put(self, key: str, body: Body) -> None:
        await self._go(writes=True)
        await self._inner.put(key, body)

    async def put_file(self, key: str, path: Path) -> None:
        await self._go(writes=True)
        await self._inner.put_file(key, path)

    async def get(self, key: str) -> bytes:
        await self._go()
        return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await self._go()
        return await self._inner.get_ranges(key, ranges)

    async def size(self, key: str) -> int:
        await self._go()
        return await self._inner.size(key)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._go()
        await self._inner.delete(keys)

    def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        return self._inner.list(prefix)

    async def presign(
        self, key: str, spans: Sequence[tuple[int, int] | None], expires_s: int
    ) -> Sequence[str]:
        return await self._inner.presign(key, spans, expires_s)

    def address(self, key: str) -> str:
        return self._inner.address(key)

    async def close(self) -> None:
        await self._inner.close()


class RecordedTable:
    """A `MetadataStore` that writes down what was changed, and under which lease."""

    def __init__(self, inner: MetadataStore, log: Path) -> None:
        self._inner = inner
        self._log = log

    async def get(self, key: str) -> Versioned | None:
        return await self._inner.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return await self._inner.get_many(keys)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        return await self._inner.list(prefix, after=after, limit=limit)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        versions = await self._inner.transact(ops)
        lines = [
            {
                "pid": os.getpid(),
                "key": op.key,
                "old": op.expected,
                "new": versions.get(op.key),
                "under": [check.expected for check in ops if _is_check_of_lease(check)],
                "epoch": _epoch(op),
            }
            for op in ops
            if isinstance(op, Put | Delete) and op.key.startswith(("head/", "zone/", "lease/"))
        ]
        with self._log.open("a") as sink:
            sink.write("".join(json.dumps(line) + "\n" for line in lines))
        return versions

    async def close(self) -> None:
        await self._inner.close()


def _is_check_of_lease(op: Op) -> bool:
    return isinstance(op, Check) and op.key.startswith("lease/")


def _epoch(op: Op) -> int | None:
    if isinstance(op, Put) and op.key.startswith("lease/"):
        return leases.decode(op.value).epoch
    return None


def create_app() -> App:
    """Return the gateway that the environment describes, with zones that may fail."""
    settings, world = Settings(), real_world()
    lines = configure_logging(settings.log_level, settings.log_format)
    told = Path(os.environ[FAULTS])
    slow_s = float(os.environ.get(SLOW_S, "3"))
    catch_up.SETTLE_S = float(os.environ.get(SETTLE_S, catch_up.SETTLE_S))  # type: ignore[misc]
    opened = open_zones(settings)
    zones = Zones(
        {name: FaultyObjects(opened.store(name), told / name, slow_s) for name in opened.names}
    )
    table = RecordedTable(open_table(settings, world), told / "table.log")
    gateway = Gateway(settings, zones, table, world)
    return App(gateway, LiveGateways(settings, table, world, zones), Metrics(), lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve", choices=["serve"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--zones")
    given = parser.parse_args()
    serve.run(
        Listening(port=given.port), data=given.data, zones=given.zones, app=f"{_NAME}:create_app"
    )


_NAME: Final = "tests.integration.failing_gateway"

if __name__ == "__main__":
    main()
