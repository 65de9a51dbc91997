"""The synchronous clients against a gateway in a process of its own, which may also die."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from riacho import (
    Admin,
    AsyncProducer,
    BufferExhausted,
    Consumer,
    DeliveryTimeout,
    GatewayUnreachable,
    InvalidConfig,
    Producer,
    Record,
    RecordMetadata,
    RiachoError,
    TopicExists,
    UnknownTopicOrPartition,
)
from tests.gateway import GatewayProcess, free_port, start_gateway

_numbers = count()


@pytest.fixture
def admin(gateway: GatewayProcess) -> Iterator[Admin]:
    with Admin(gateway.url) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    return admin.create_topic(f"topic-{next(_numbers)}", partitions=3).name


def read(url: str, topic: str, count: int) -> list[Record]:
    records: list[Record] = []
    with Consumer(url, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        give_up_s = time.monotonic() + 120
        while len(records) < count and time.monotonic() < give_up_s:
            records += consumer.poll(500)
    return records


def test_topics_from_birth_to_death(admin: Admin) -> None:
    created = admin.create_topic("life", 2, config={"retention.ms": 1000000})
    assert (created.partitions, created.config["retention.ms"]) == (2, "1000000")
    assert "life" in [topic.name for topic in admin.list_topics()]
    with pytest.raises(TopicExists):
        admin.create_topic("life")
    with pytest.raises(InvalidConfig):
        admin.alter_topic("life", config={"no.such.setting": 1})

    altered = admin.alter_topic("life", partitions=4, config={"retention.ms": None})
    assert altered.partitions == 4
    assert altered.config["retention.ms"] == "604800000"
    assert [info.partition for info in admin.partitions("life")] == [0, 1, 2, 3]
    assert admin.offsets("life", 0, "latest").offset == 0
    assert admin.cluster()["gateways"]

    admin.delete_topic("life")
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_topic("life")


def test_records_from_many_threads_arrive_in_the_order_of_each(
    gateway: GatewayProcess, topic: str
) -> None:
    with Producer(gateway.url) as producer:

        def send_some(name: int) -> None:
            for n in range(500):
                producer.send(topic, f"{n}", key=f"{name}")

        threads = [threading.Thread(target=send_some, args=[name]) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    records = read(gateway.url, topic, 4000)
    assert len(records) == 4000
    for name in range(8):
        own = [int(r.text()) for r in records if r.key_text() == f"{name}"]
        assert own == list(range(500))


def test_metadata_says_where_the_record_is(gateway: GatewayProcess, topic: str) -> None:
    with Producer(gateway.url, linger_ms=0) as producer:
        found = [producer.send(topic, str(n), partition=1).result(120) for n in range(3)]

    assert found == [RecordMetadata(topic, 1, n, found[n].timestamp) for n in range(3)]


def test_a_program_that_forgets_to_close_still_delivers(
    gateway: GatewayProcess, topic: str
) -> None:
    script = (
        "import sys; from riacho import Producer\n"
        "Producer.EXIT_TIMEOUT_S = 120\n"  # A busy machine may take longer than five seconds.
        "producer = Producer(sys.argv[1], linger_ms=60000)\n"
        "producer.send(sys.argv[2], 'v')"
    )
    subprocess.run([sys.executable, "-c", script, gateway.url, topic], check=True, timeout=240)

    assert len(read(gateway.url, topic, 1)) == 1


def test_works_where_an_event_loop_is_running(gateway: GatewayProcess, topic: str) -> None:
    async def notebook_cell() -> list[Record]:
        with Producer(gateway.url) as producer:
            producer.send(topic, "sync inside async").result(120)
        async with AsyncProducer(gateway.url) as other:
            await other.send_and_wait(topic, "async beside it")
        return read(gateway.url, topic, 2)

    assert len(asyncio.run(notebook_cell())) == 2


def test_a_callback_must_not_wait_but_may_send(gateway: GatewayProcess, topic: str) -> None:
    raised: list[BaseException] = []
    chained = threading.Event()
    with Producer(gateway.url, linger_ms=0) as producer:

        def callback(metadata: RecordMetadata | None, error: RiachoError | None) -> None:
            try:
                producer.flush()
            except RuntimeError as failure:
                raised.append(failure)
            producer.send(topic, "two", callback=lambda *_: chained.set())

        producer.send(topic, "one", callback=callback)
        assert chained.wait(60)

    assert "must not wait" in str(raised[0])


def test_the_background_thread_ends_with_the_last_client(gateway: GatewayProcess) -> None:
    def running() -> bool:
        return any(thread.name == "riacho" for thread in threading.enumerate())

    with Admin(gateway.url) as admin:
        topic = admin.create_topic("background").name
    with Producer(gateway.url) as producer, Consumer(gateway.url) as consumer:
        producer.send(topic, "v").result(120)
        consumer.subscribe(topic)
        consumer.poll(10)
        assert running()

    assert not running()
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send(topic, "v")
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(10)


def test_a_consumer_goes_on_where_another_stopped(gateway: GatewayProcess, topic: str) -> None:
    with Producer(gateway.url) as producer:
        for n in range(100):
            producer.send(topic, str(n), partition=0)
    seen: list[int] = []
    position = 0
    while len(seen) < 100:
        with Consumer(gateway.url, max_poll_records=30) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek(topic, 0, position)
            seen += [int(record.text()) for record in consumer.poll(5000)]
            position = consumer.position(topic, 0)

    assert seen == list(range(100))


def test_each_record_is_there_once_and_in_order_though_a_gateway_dies(tmp_path: Path) -> None:
    port = free_port()
    first = start_gateway(tmp_path, "--log-level", "warning", port=port)
    with Admin(first.url) as admin:
        admin.create_topic("t", 3)
    with Producer(first.url, linger_ms=1, retry_backoff_ms=20) as producer:
        futures = []
        for n in range(3000):
            futures.append(producer.send("t", str(n), key=str(n % 10)))
            if n == 1000:
                first.kill()
            if n == 2000:
                second = start_gateway(tmp_path, "--log-level", "warning", port=port)
            if n % 50 == 0:
                time.sleep(0.001)
        producer.flush(60)

    with second:
        assert all(future.result(0).offset >= 0 for future in futures)
        with Admin(second.url) as admin:
            total = sum(info.high_watermark for info in admin.partitions("t"))
        records = read(second.url, "t", total)
    for key in range(10):
        own = [int(record.text()) for record in records if record.key_text() == str(key)]
        assert own == list(range(key, 3000, 10))


def test_a_consumer_rides_out_a_restart(tmp_path: Path) -> None:
    port = free_port()
    first = start_gateway(tmp_path, "--log-level", "warning", port=port)
    with Admin(first.url) as admin, Producer(first.url, retry_backoff_ms=20) as producer:
        admin.create_topic("t")
        producer.send("t", "before").result(120)
        with Consumer(first.url, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            assert [record.text() for record in consumer.poll(5000)] == ["before"]
            first.stop()
            assert consumer.poll(100) == []
            with start_gateway(tmp_path, "--log-level", "warning", port=port):
                producer.send("t", "after").result(120)
                assert [record.text() for record in consumer.poll(10_000)] == ["after"]


def test_an_unreachable_gateway_is_reported_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Admin(url) as admin, pytest.raises(GatewayUnreachable, match="no connection"):
        admin.list_topics()
    with Producer(url, max_block_ms=200) as producer, pytest.raises(GatewayUnreachable):
        producer.send("t", "v")


def test_when_the_gateway_stays_away_records_fail_and_memory_stays_bounded(
    tmp_path: Path,
) -> None:
    gateway = start_gateway(tmp_path, "--log-level", "warning")
    with Admin(gateway.url) as admin:
        admin.create_topic("t")
    settings = {"delivery_timeout_ms": 1500, "max_block_ms": 100, "retry_backoff_ms": 20}
    with Producer(gateway.url, buffer_memory=100_000, batch_size=10_000, **settings) as producer:
        producer.send("t", "v").result(120)
        gateway.kill()
        futures = []

        def fill() -> None:
            while True:
                futures.append(producer.send("t", b"x" * 1000))

        with pytest.raises(BufferExhausted):
            fill()

    assert len(futures) == 100_000 // 1064
    outcomes = {type(future.exception(10)) for future in futures}
    assert outcomes == {DeliveryTimeout}
