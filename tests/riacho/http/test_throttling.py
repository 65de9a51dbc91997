"""A client that has used up its quota waits for as long as the gateway says, and no longer."""

import pytest

from riacho import Admin, Consumer, Producer
from riacho.errors import DeliveryTimeout
from storage.errors import Overloaded
from tests.riacho.http.answering import Answer, answering, throttled

WAIT_MS = 700
TOPIC = {"name": "orders", "partitions": 1, "replication_factor": 1, "config": {}}
WRITTEN = {"results": [{"partition": 0, "base_offset": 0, "count": 1}]}


def test_a_producer_waits_for_its_quota() -> None:
    def answer(path: str, number: int) -> Answer:
        if number == 1:
            return throttled(WAIT_MS)
        if path.endswith("/records"):
            return Answer(200, WRITTEN)
        return Answer(200, {"producer_id": 1, "epoch": 0} if path.endswith("/producers") else TOPIC)

    with answering(answer) as server, Producer(server.url) as producer:
        assert producer.send("orders", "x").result().offset == 0
        for ending in ("/records", "/producers", "/topics/orders"):
            first, second = server.times_s(ending)
            assert second - first >= WAIT_MS / 1000, ending


def test_a_record_that_its_quota_keeps_too_long_fails_in_time_and_says_why() -> None:
    def answer(path: str, _: int) -> Answer:
        return throttled(60_000) if path.endswith("/records") else Answer(200, TOPIC)

    options = {"delivery_timeout_ms": 1000, "enable_idempotence": False}
    with answering(answer) as server, Producer(server.url, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(DeliveryTimeout, match="the quota of User:ana is used up"):
            producer.send("orders", "x").result(timeout=60)
        assert len(server.times_s("/records")) == 1


def test_a_consumer_waits_for_its_quota() -> None:
    def answer(path: str, number: int) -> Answer:
        return throttled(WAIT_MS) if number == 1 else Answer(403, _REFUSED)

    with answering(answer) as server, Consumer(server.url) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek("orders", 0, 0)
        with pytest.raises(Exception, match="not allowed"):
            consumer.poll(timeout_ms=60_000)
        first, second = server.times_s("/records")
        assert second - first >= WAIT_MS / 1000


_REFUSED = {
    "code": "TOPIC_AUTHORIZATION_FAILED",
    "detail": "not allowed",
    "status": 403,
    "retryable": False,
    "may_have_applied": False,
}


def test_an_admin_waits_for_its_quota() -> None:
    def answer(_: str, number: int) -> Answer:
        return throttled(WAIT_MS) if number == 1 else Answer(200, {"topics": []})

    with answering(answer) as server, Admin(server.url) as admin:
        assert admin.list_topics() == []
        first, second = server.times_s("/topics")
        assert second - first >= WAIT_MS / 1000


def test_an_admin_is_told_how_long_if_that_is_too_long() -> None:
    with answering(lambda *_: throttled(45_500)) as server, Admin(server.url) as admin:
        with pytest.raises(Overloaded) as caught:
            admin.list_topics()
        assert caught.value.retry_after_s == 45.5  # type: ignore[attr-defined]
        assert len(server.asked) == 1
