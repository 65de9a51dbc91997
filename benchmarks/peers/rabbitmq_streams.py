"""RabbitMQ streams: one node, and rstream.

Each partition is a stream. Streams are never synced: a confirmed record is in the page
cache of the node.

- A batch is one publish frame for each partition that it has records for.
- A fetch is a subscription to all partitions; the server sends chunks as they were written,
  whatever the batch.
- rstream has at most 200 publishers or subscribers on an instance, so many partitions are shared
  out to several instances.
"""

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from rstream import (
    ConfirmationStatus,
    Consumer,
    ConsumerOffsetSpecification,
    MessageContext,
    OffsetType,
    Producer,
)

from benchmarks.harness import free_port
from benchmarks.peers import peer, servers
from benchmarks.peers.peer import CACHED, NotHere, Rate

NUMBER_DIGITS = 10
LAST_S_MAX = 60.0
"""Maximum time from the last send until all are confirmed or received."""
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""The default, 1 MiB, is less than 10,000 records."""
STREAMS_MAX = 150
"""Of one instance of the client."""
MAKERS = 20
GUEST = {"username": "guest", "password": "guest"}
DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""What is on the path there changes to another user and another folder first."""


class RabbitStreams:
    name = "RabbitMQ streams"
    durability = CACHED

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = 0
        self._version = ""
        self._partitions: dict[str, int] = {}
        self.fetched: list[bytes] = []
        """Values that the last fetch read, for checks."""

    def about(self) -> str:
        return (
            f"rabbitmq-server {self._version}, rstream {version('rstream')}: one node, "
            "publish frames, confirms, never synced"
        )

    def start(self, folder: Path) -> None:
        program, epmd = _program(), shutil.which("epmd")
        if epmd is None:
            raise NotHere("epmd is missing: apt-get install erlang-base")
        self._port = free_port()
        names_port = free_port()
        env = _environment(folder, self._port, names_port)
        try:
            # Ours, because the one that a node starts outlives it.
            log = folder / "epmd.log"
            names = servers.start(
                [epmd, "-address", "127.0.0.1", "-port", str(names_port)], log, env
            )
            self._processes.append(names)
            servers.wait_port(names_port, names, log)
            log = folder / "rabbitmq-server.log"
            node = servers.start([program], log, env)
            self._processes.append(node)
            servers.wait_port(self._port, node, log)
            self._version = peer.run(self._ask_version())
        except BaseException:
            self.stop()
            raise

    async def _ask_version(self) -> str:
        async with Producer("127.0.0.1", self._port, **GUEST) as producer:
            client = await producer.default_client
            return str(client.server_properties["version"])

    def stop(self) -> None:
        servers.end(self._processes)
        self._processes.clear()

    def cpu_s(self) -> float:
        return peer.cpu_s(self._processes)

    def make(self, topic: str, partitions: int = 1) -> None:
        self._partitions[topic] = partitions
        peer.run(self._make(self._streams(topic)))

    async def _make(self, streams: list[str]) -> None:
        async def work(some: list[str]) -> None:
            async with Producer("127.0.0.1", self._port, **GUEST) as producer:
                for stream in some:
                    await producer.create_stream(stream)

        # One by one they would take minutes.
        shares = (streams[number::MAKERS] for number in range(MAKERS))
        await asyncio.gather(*(work(share) for share in shares if share))

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        return peer.run(self._produce(topic, values, batch, in_flight, seconds))

    async def _produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        streams = self._streams(topic)
        confirms = Confirms()
        async with self._producers(streams) as producers:
            began_s = time.perf_counter()
            while True:
                await confirms.until((in_flight - 1) * batch)
                if time.perf_counter() - began_s >= seconds:
                    break
                first = confirms.sent
                for number in range(first, first + min(batch, len(streams))):
                    stream = number % len(streams)
                    chosen = [
                        values[each % len(values)]
                        for each in range(number, first + batch, len(streams))
                    ]
                    confirms.sent += len(chosen)
                    await producers[stream].send_batch(
                        streams[stream], chosen, on_publish_confirm=confirms.take
                    )
            await confirms.until(0)
            took_s = time.perf_counter() - began_s
        return Rate(confirms.confirmed, took_s)

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        return peer.run(self._fetch(topic, records))

    async def _fetch(self, topic: str, records: int) -> Rate:
        values: list[bytes] = []
        enough = asyncio.Event()

        def keep(value: bytes, _: MessageContext) -> None:
            values.append(value)
            if len(values) >= records:
                enough.set()

        streams = self._streams(topic)
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        async with self._consumers(streams) as consumers:
            began_s = time.perf_counter()
            await asyncio.gather(
                *(
                    consumer.subscribe(stream, keep, offset_specification=first)
                    for stream, consumer in zip(streams, consumers, strict=True)
                )
            )
            await enough.wait()
            took_s = time.perf_counter() - began_s
        self.fetched = values
        return Rate(len(values), took_s)

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        return peer.run(self._delays(topic, value, rate, seconds))

    async def _delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        count = max(10, int(rate * seconds))
        arrived_s: dict[int, float] = {}
        all_here = asyncio.Event()

        def keep(text: bytes, _: MessageContext) -> None:
            arrived_s[int(text[:NUMBER_DIGITS])] = time.perf_counter()
            if len(arrived_s) == count:
                all_here.set()

        stream, filling, confirms = self._streams(topic)[0], value[NUMBER_DIGITS:], Confirms()
        news = ConsumerOffsetSpecification(OffsetType.NEXT, None)
        async with self._consumers([stream]) as (reading,), self._producers([stream]) as (writing,):
            await reading.subscribe(stream, keep, offset_specification=news)
            # A little later, so that the first is not late before it begins.
            began_s = time.perf_counter() + 0.01
            for number in range(count):
                # Always, so that news is read also when we are late ourselves.
                await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
                text = b"%0*d" % (NUMBER_DIGITS, number)
                confirms.sent += 1
                await writing.send_batch(stream, [text + filling], on_publish_confirm=confirms.take)
            await asyncio.wait_for(all_here.wait(), LAST_S_MAX)
            await confirms.until(0)
        return [
            arrived_s[number] - (began_s + number / rate) for number in range(count // 10, count)
        ]

    def _streams(self, topic: str) -> list[str]:
        return [f"{topic}.{number}" for number in range(self._partitions[topic])]

    @asynccontextmanager
    async def _producers(self, streams: list[str]) -> AsyncIterator[list[Producer]]:
        """Give a producer for each stream, ready to publish to it."""

        async def work(producer: Producer, some: list[str]) -> None:
            for stream in some:
                # Not public; else the first records would pay for it, while the clock runs.
                await producer._get_or_create_publisher(stream)

        async with AsyncExitStack() as stack:
            made: list[Producer] = []
            for some in _shares(streams):
                producer = Producer("127.0.0.1", self._port, frame_max=FRAME_BYTES_MAX, **GUEST)
                made += [await stack.enter_async_context(producer)] * len(some)
            shares = zip(made[::STREAMS_MAX], _shares(streams), strict=True)
            await asyncio.gather(*(work(producer, some) for producer, some in shares))
            yield made

    @asynccontextmanager
    async def _consumers(self, streams: list[str]) -> AsyncIterator[list[Consumer]]:
        """Give a consumer for each stream, not yet subscribed to it."""
        async with AsyncExitStack() as stack:
            made: list[Consumer] = []
            for some in _shares(streams):
                consumer = Consumer("127.0.0.1", self._port, frame_max=FRAME_BYTES_MAX, **GUEST)
                made += [await stack.enter_async_context(consumer)] * len(some)
            yield made


class Confirms:
    """Records sent, and those the server has confirmed."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self._failure = 0
        self._allowed = 0
        self._news = asyncio.Event()

    def take(self, status: ConfirmationStatus) -> None:
        if status.is_confirmed:
            self.confirmed += 1
        else:
            self._failure = status.response_code
        if self._failure or self.sent - self.confirmed <= self._allowed:
            self._news.set()

    async def until(self, missing_max: int) -> None:
        """Wait until at most this many records are sent and not confirmed."""
        self._allowed = missing_max
        while self.sent - self.confirmed > missing_max:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), LAST_S_MAX)
            if self._failure:
                raise RuntimeError(f"not confirmed: code {self._failure}")


def _shares(streams: list[str]) -> list[list[str]]:
    """Return the partitions of each instance of the client."""
    return [streams[first : first + STREAMS_MAX] for first in range(0, len(streams), STREAMS_MAX)]


def _environment(folder: Path, port: int, names_port: int) -> dict[str, str]:
    """Write the configuration of the node, and return its environment."""
    (folder / "rabbitmq.conf").write_text(
        "listeners.tcp = none\n"
        f"stream.listeners.tcp.1 = 127.0.0.1:{port}\n"
        "stream.advertised_host = 127.0.0.1\n"
        f"stream.advertised_port = {port}\n"
        f"stream.frame_max = {FRAME_BYTES_MAX}\n"
    )
    (folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    (folder / "rabbitmq-env.conf").touch()
    return {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_NODENAME": f"riacho-{port}@localhost",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
        ),
        # Else the script would stay, and the node outlive a script that is killed.
        "RUNNING_UNDER_SYSTEMD": "1",
    }


def _program() -> str:
    found = str(DEBIAN) if DEBIAN.exists() else shutil.which("rabbitmq-server")
    if found is None:
        raise NotHere("rabbitmq-server is missing: apt-get install rabbitmq-server")
    return found


if __name__ == "__main__":
    from benchmarks.peers.smoke import smoke

    smoke(RabbitStreams())
