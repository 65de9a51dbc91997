"""Gateways whose reads of the object store are counted, in front of it and on the wire.

    with deployment("s3") as stores, stores.gateway() as gateway:
        before = gateway.note()

The gateway is the real one, with a counter before each zone that /metrics shows. On S3 (ministack)
there is also a proxy before the server.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Server, free_port, wait_ready
from service import serve
from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.process.stores import open_table, open_zones
from service.security.tls.listening import Listening
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.objects import ObjectStore
from storage.zones.zones import Zones

PREFIX = "bench_reads_"


class CountedObjects:
    """Counts reads by kind of object; see `_kind`."""

    def __init__(self, inner: ObjectStore, counts: Counter[str]) -> None:
        self._inner = inner
        self._counts = counts

    async def get(self, key: str) -> bytes:
        self._counts[_kind(key)] += 1
        return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._counts[_kind(key)] += 1
        return await self._inner.get_ranges(key, ranges)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _kind(key: str) -> str:
    match Path(key).suffix:
        case ".seg" | ".parquet":
            return "slices"
        case ".page" | ".node" | ".root" | ".segments":
            return "index"
    return "other"


class CountedMetrics(Metrics):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def render(self) -> bytes:
        lines = [f"{PREFIX}{kind} {count}\n" for kind, count in self._counts.items()]
        return super().render() + "".join(lines).encode()


def create_app() -> App:
    settings, world = Settings(), real_world()
    opened, counts = open_zones(settings), Counter[str]()
    stores = {name: CountedObjects(opened.store(name), counts) for name in opened.names}
    zones, table = Zones(stores), open_table(settings, world)
    gateway = Gateway(settings, zones, table, world)
    return App(gateway, LiveGateways(settings, table, world, zones), CountedMetrics(counts))


@dataclass
class Counted:
    """A gateway, and the counter of its requests to S3, if it uses S3."""

    server: Server
    wire: Counter[str] | None

    def reads(self) -> Counter[str]:
        with urllib.request.urlopen(f"{self.server.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found = [line.removeprefix(PREFIX).split() for line in lines if line.startswith(PREFIX)]
        return Counter({kind: int(count) for kind, count in found})

    def note(self) -> "Note":
        wire = None if self.wire is None else self.wire["slices"] + self.wire["index"]
        return Note(self.reads(), wire, self.server.cpu_s())


@dataclass(frozen=True)
class Note:
    reads: Counter[str]
    wire: int | None
    cpu_s: float


@dataclass
class Deployment:
    """Stores that several gateways share."""

    name: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    s3: str = ""

    @contextlib.contextmanager
    def gateway(self, **more: str) -> Iterator[Counted]:
        """Run a gateway on the stores of earlier ones of the same deployment."""
        with contextlib.ExitStack() as stack:
            env, wire = dict(self.env), None
            if self.s3:
                url, wire = stack.enter_context(counting_proxy(self.s3))
                env["AWS_ENDPOINT_URL_S3"] = url
            yield Counted(stack.enter_context(started(self.folder, env | more)), wire)


@contextlib.contextmanager
def started(folder: Path, env: Mapping[str, str]) -> Iterator[Server]:
    port = free_port()
    module = "benchmarks.counted_gateway"
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--port", str(port), "--data", str(folder)],
        env={**os.environ, "RIACHO_LOG_LEVEL": "warning", **env},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_ready(f"{url}/ready", process)
        yield Server(url, port, process, folder)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(40)


@contextlib.contextmanager
def counting_proxy(upstream: str) -> Iterator[tuple[str, Counter[str]]]:
    """Pass everything on to `upstream`, and count GETs by kind of object."""
    from tests.storage.helpers.lossy_proxy import LossyProxy, Request

    counts = Counter[str]()

    class Proxy(LossyProxy):
        async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
            method, target, _ = request.line.split()
            if method == "GET":
                counts[_kind(target.partition("?")[0])] += 1
            writer.write(await self._forward(request))
            await writer.drain()
            return True

    ready, stop = threading.Event(), asyncio.Event()
    running: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        async with Proxy(upstream) as proxy:
            running.append((proxy.url, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="proxy", daemon=True)
    thread.start()
    assert ready.wait(30)
    [(url, loop)] = running
    try:
        yield url, counts
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


@contextlib.contextmanager
def deployment(name: str) -> Iterator[Deployment]:
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        if name == "embedded":
            yield Deployment(name, Path(folder))
            return
        from tests.local_aws import LocalAws
        from tests.storage.helpers import servers

        with servers.ministack() as url:
            env = LocalAws(url, url).prepare("a=s3://fan-out", "dynamodb://fan-out")
            yield Deployment(name, Path(folder), env, url)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    serve.run(
        Listening(port=given.port), data=given.data, app="benchmarks.counted_gateway:create_app"
    )


if __name__ == "__main__":
    main()
