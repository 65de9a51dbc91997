"""A flood of random and damaged requests at a real gateway with security on, half of them before
authentication, beside clients who want to work: they do not notice.

`RIACHO_FUZZ_CASES=1000`, as `make proof PART=fuzz` has it, makes a million requests.
"""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from service.kafka.listener.connection import EARLY_LENGTH_MAX
from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import encode, encode_request
from service.kafka.protocol.messages.handshake import SaslAuthenticateRequest, SaslHandshakeRequest
from service.kafka.protocol.notation import Message
from tests.commands import exit_code
from tests.fuzz.cases import ASKED
from tests.fuzz.kafka import EVERY
from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.integration.test_overload import memory_bytes, peak_bytes
from tests.service.kafka.protocol.damage import damaged
from tests.service.kafka.protocol.instances import TEXTS, instance
from tests.torture.summary import report

pytestmark = pytest.mark.slow

REQUESTS = 1000 * (ASKED or 2)
ATTACKERS = 8
AT_ONCE = 16
"""Requests that an attacker sends before it looks for answers."""
PATIENCE_S = 120.0
ANSWER_S = 1.0
"""How long an attacker waits: a member that joins, or a fetch, may wait for very long."""
MIB = 1024 * 1024
PEAK_BYTES_MAX = 400 * MIB
GROWTH_BYTES_MAX = 150 * MIB
LINE = re.compile(r"^(\d{4}-\d\d-\d\d|INFO|WARNING|ERROR|CRITICAL|\{|riacho|\s*$)")

WAITING = frozenset({Api.JOIN_GROUP, Api.SYNC_GROUP, Api.FETCH})


@dataclass
class Place:
    """A gateway with security on, and who may do what there."""

    process: GatewayProcess
    port: int
    worker: dict[str, str]
    """What a client that wants to work logs in with."""
    attacker: tuple[str, str]
    """The id and the secret of a key with a few rights."""


def _key(place: GatewayProcess, root: str, principal: str) -> tuple[str, str]:
    made = httpx.post(
        f"{place.url}/v1/keys",
        json={"principal": principal},
        headers={"authorization": f"Bearer {root}"},
    )
    assert made.status_code == 201, made.text
    return made.json()["id"], made.json()["key"]


def _allow(place: GatewayProcess, root: str, principal: str, kind: str, name: str) -> None:
    fields = {"resource_type": kind, "resource_name": name, "pattern_type": "LITERAL"}
    fields |= {"principal": principal, "host": "*", "operation": "ALL", "permission": "ALLOW"}
    headers = {"authorization": f"Bearer {root}"}
    made = httpx.post(f"{place.url}/v1/acls", json=fields, headers=headers)
    assert made.status_code in (200, 201, 204), made.text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sockets")
    data = {"RIACHO_DATA": str(folder / "data")}
    code, said = exit_code(
        "keys", "create", "--super", "--principal", "User:root", "-o", "json", env=data
    )
    assert code == 0, said.stderr
    made = json.loads(said.stdout)
    port = free_port()
    args = ("--security", "on", "--kafka", f"127.0.0.1:{port}")
    with start_gateway(folder, *args) as process:
        for name in TEXTS:
            if name.isalpha() and name.isascii():
                for kind in ("TOPIC", "GROUP"):
                    _allow(process, made["key"], "User:mallory", kind, name)
        attacker = _key(process, made["key"], "User:mallory")
        worker = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": made["id"],
            "sasl.password": made["key"],
        }
        yield Place(process, port, worker, attacker)


class Bystander(threading.Thread):
    """Produces records and reads them, one after the other, until told to stop."""

    TOPIC = "quiet-work"

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self.errors: list[str] = []
        self.took_s: list[float] = []
        self.is_over = threading.Event()
        common = place.worker | {"log_level": 0}
        self._producer = Producer(
            {**common, "enable.idempotence": True, "linger.ms": 0, "error_cb": self._failed}
        )
        self._consumer = Consumer({**common, "group.id": "quiet", "error_cb": self._failed})

    def _failed(self, error: object) -> None:
        self.errors.append(str(error))

    def run(self) -> None:
        try:
            self._consumer.assign([TopicPartition(self.TOPIC, 0, 0)])
            number = 0
            while not self.is_over.is_set():
                self._round(number)
                number += 1
        except Exception as error:  # noqa: BLE001 - The test looks at it.
            self.errors.append(repr(error))
        finally:
            self._consumer.close()

    def _round(self, number: int) -> None:
        value = b"%d" % number
        began_s = time.monotonic()
        acknowledged: list[object] = []
        self._producer.produce(
            self.TOPIC, value, partition=0, on_delivery=lambda error, _: acknowledged.append(error)
        )
        assert self._producer.flush(PATIENCE_S) == 0
        assert acknowledged == [None], acknowledged
        message = self._consumer.poll(PATIENCE_S)
        assert message is not None, number
        assert message.error() is None, message.error()
        assert (message.offset(), message.value()) == (number, value)
        self.took_s.append(time.monotonic() - began_s)


def frame_of(random: Random) -> tuple[bytes, bool]:
    """Return a request that is right, damaged or random, and whether it may wait for long."""
    key, version = random.choice(EVERY)
    if key in WAITING and random.random() < 0.9:
        return frame_of(random)
    request = APIS[key].request
    body = b"".join(encode(instance(request, version, random), version))
    kind = random.random()
    if kind < 0.3:
        body = damaged(random, [body])
    elif kind < 0.4:
        body = random.randbytes(random.randrange(80))
    head = b"".join(encode_request(key, version, random.getrandbits(31), "m", request()))
    # The header ends where the empty request begins.
    empty = b"".join(encode(request(), version))
    frame = head[4 : len(head) - len(empty)] + body
    if random.random() < 0.05:
        frame = damaged(random, [frame])
    return framed(frame, random), key in WAITING


def framed(frame: bytes, random: Random) -> bytes:
    length = len(frame)
    if random.random() < 0.01:
        length = random.choice((-1, 0, 7, 2**31 - 1, -(2**31), EARLY_LENGTH_MAX + 1, length + 5))
    return length.to_bytes(4, "big", signed=True) + frame


def message(version: int, request: Message) -> bytes:
    return b"".join(bytes(p) for p in encode_request(request.KEY, version, 1, "m", request))


async def answer(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, who: tuple[str, str]
) -> None:
    writer.write(message(1, SaslHandshakeRequest(mechanism="PLAIN")))
    token = f"\0{who[0]}\0{who[1]}".encode()
    writer.write(message(2, SaslAuthenticateRequest(auth_bytes=token)))
    async with asyncio.timeout(PATIENCE_S):
        await answer(reader)
        await answer(reader)


async def attack(place: Place, seed: str, count: int, *, logs_in: bool) -> int:
    """Send so many requests that are answered, or for which the connection is closed."""
    random, done = Random(seed), 0
    while done < count:
        with suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=16 * MIB)
            try:
                if logs_in:
                    await log_in(reader, writer, place.attacker)
                done += await _attack_once(reader, writer, random)
            finally:
                writer.transport.abort()
    return done


async def _attack_once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, random: Random
) -> int:
    done = 0
    while True:
        frames = [frame_of(random)[0] for _ in range(AT_ONCE)]
        data = b"".join(frames)
        if random.random() < 0.1:
            data = data[: random.randrange(len(data))]
        writer.write(data)
        for _ in frames:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await answer(reader)
            except (EOFError, ConnectionError, TimeoutError):
                return done + 1
            done += 1


async def flood(place: Place, count: int) -> int:
    each = count // ATTACKERS
    seed = time.time_ns() if ASKED else 0
    report("seed of the flood", str(seed))
    return sum(
        await asyncio.gather(
            *(
                attack(place, f"{seed} {number}", each, logs_in=number % 2 == 0)
                for number in range(ATTACKERS)
            )
        )
    )


@pytest.mark.timeout(7200 if ASKED else 120)
def test_a_flood_of_requests_hurts_nobody(place: Place) -> None:
    bystander = Bystander(place)
    bystander.start()
    give_up_s = time.monotonic() + PATIENCE_S
    while not bystander.took_s:
        assert time.monotonic() < give_up_s, bystander.errors
        assert bystander.is_alive(), bystander.errors
        time.sleep(0.05)
    before = memory_bytes(place.process.process.pid)
    began_s = time.monotonic()
    assert asyncio.run(flood(place, REQUESTS)) >= REQUESTS - ATTACKERS
    took_s = time.monotonic() - began_s
    bystander.is_over.set()
    bystander.join(PATIENCE_S)
    waits = sorted(bystander.took_s)
    peak_mib = peak_bytes(place.process.process.pid) // MIB
    report(
        f"{REQUESTS} requests of attackers in {took_s:.0f} s; beside them",
        f"{len(waits)} records written and read, median {waits[len(waits) // 2] * 1000:.0f} ms,"
        f" longest {waits[-1] * 1000:.0f} ms; peak {peak_mib} MiB",
    )
    assert bystander.errors == []
    assert len(waits) > 10
    check_well(place, before)


def check_well(place: Place, before_bytes: int) -> None:
    """The gateway answers, takes little more memory than before, and met no surprise."""
    pid = place.process.process.pid
    assert place.process.process.poll() is None
    assert httpx.get(place.process.url + "/healthy").status_code == 200
    socket.create_connection(("127.0.0.1", place.port), PATIENCE_S).close()
    assert peak_bytes(pid) < PEAK_BYTES_MAX
    assert memory_bytes(pid) - before_bytes < GROWTH_BYTES_MAX
    text = place.process.log.read_text()
    strange = [line for line in text.splitlines() if not LINE.match(line)]
    assert not strange, strange[:60]
    assert "Traceback" not in text
