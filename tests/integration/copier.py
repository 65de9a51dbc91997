"""A program that copies a topic in transactions, for tests that kill it.

    python -m tests.integration.copier '{"name": "copier-0", "urls": [...], ...}'

It is written as the documentation tells everyone to: poll, send, send the offsets, and after
whatever went wrong go back to where the group has come to. Each request goes to any of the
gateways. What it has met is printed, one line for each.
"""

import json
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

import storage.formats.records  # noqa: F401  Now, and not in the time of the first transaction.
from riacho import Consumer, FencedInstance, InvalidProducerEpoch, Producer, Record, RiachoError
from riacho.transactions import held

GROUP = "copiers"
SESSION_MS = 2_000
TRANSACTION_MS = 2_000

RECORDS_PER_TRANSACTION = 750
STAGED_BYTES = 24 * 1024
"""A copier that stages has no more than this in one request: its transactions take several."""

FENCED = 3
"""How a copier ends that another one with its name has taken the place of."""


@dataclass(frozen=True, kw_only=True)
class Job:
    name: str
    urls: Sequence[str]
    source: str
    target: str
    is_staged: bool = False
    is_static: bool = False
    seed: int = 0


class Spread(httpx.AsyncBaseTransport):
    """Sends each request to one of the gateways, as a load balancer would."""

    def __init__(self, urls: Sequence[str], chance: random.Random) -> None:
        self._places = [(httpx.URL(url).host, httpx.URL(url).port) for url in urls]
        self._chance = chance
        self._wire = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host, port = self._chance.choice(self._places)
        request.url = request.url.copy_with(host=host, port=port)
        return await self._wire.handle_async_request(request)

    async def aclose(self) -> None:
        await self._wire.aclose()


def copy_until_stopped(job: Job) -> int:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    chance = random.Random(job.seed)
    if job.is_staged:
        held.CALL_BYTES_MAX = STAGED_BYTES  # type: ignore[misc]
    consumer = Consumer(
        job.urls[0],
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS / 4,
        group_instance_id=job.name if job.is_static else None,
        client_id=job.name,
        transport=Spread(job.urls, chance),
    )
    producer = Producer(
        job.urls[0],
        transactional_id=job.name,
        transaction_timeout_ms=TRANSACTION_MS,
        transport=Spread(job.urls, chance),
    )
    with producer, consumer:
        consumer.subscribe(job.source)
        while not told:
            try:
                if records := consumer.poll(200, max_records=RECORDS_PER_TRANSACTION):
                    copy(producer, consumer, records, job.target)
                    say("committed", len(records))
            except (InvalidProducerEpoch, FencedInstance) as error:
                say(error.code)
                return FENCED
            except RiachoError as error:
                say(error.code)
                consumer.seek_to_committed()
    return 0


def copy(producer: Producer, consumer: Consumer, records: Sequence[Record], target: str) -> None:
    with producer.transaction():
        for record in records:
            producer.send(
                target,
                record.value,
                # Several keys, so that one transaction writes to all partitions.
                key=f"{record.partition}/{record.offset % 7}",
                headers={"source": f"{record.partition}:{record.offset}"},
            )
        producer.send_offsets(consumer)


def say(what: str, count: int = 1) -> None:
    sys.stdout.write(f"{what} {count}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(copy_until_stopped(Job(**json.loads(sys.argv[1]))))
