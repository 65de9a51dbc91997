"""What `errors.*` means: retries on a clock of their own, tolerance, logs, dead letters."""

import logging
from itertools import pairwise

import pytest

from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import ConfigFault, DataFault, RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromSource, Header
from service.connect.tasks.errors import VALUE_CONVERTER, ErrorPolicy, StoppedAt
from service.connect.tasks.letters import FromRawLog
from tests.service.connect.tasks.clocks import SteppedClock

pytestmark = pytest.mark.anyio

ALL = {"errors.tolerance": "all", "connector.class": "ListSink"}
DEAD = {
    **ALL,
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
}
RECORD = LogRecord("orders", 2, b"k", b"v", (("h", b"1"),), 17, offset=41)

KAFKAS_HEADERS = [
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "__connect.errors.connector.name",
    "__connect.errors.task.id",
    "__connect.errors.stage",
    "__connect.errors.class.name",
    "__connect.errors.exception.class.name",
    "__connect.errors.exception.message",
    "__connect.errors.exception.stacktrace",
]


def policy_of(config: dict[str, str], clock: SteppedClock | None = None) -> ErrorPolicy:
    return ErrorPolicy("c", 3, config, (clock or SteppedClock()).world)


class Failing:
    """Raises so often, then returns."""

    def __init__(self, times: int, error: Exception, clock: SteppedClock | None = None) -> None:
        self.left = times
        self.error = error
        self.clock = clock or SteppedClock()
        self.called_s: list[float] = []

    @property
    def pauses_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.called_s)]

    async def __call__(self) -> str:
        self.called_s.append(self.clock.now_s)
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "done"


async def test_a_retry_waits_twice_as_long_each_time() -> None:
    clock = SteppedClock()
    policy = policy_of({"errors.retry.timeout": "60000"}, clock)

    call = Failing(5, RetriableFault("down"), clock)

    assert await policy.retried(call) == "done"

    assert call.pauses_s == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8])


async def test_retries_end_with_the_timeout_and_a_last_attempt_at_its_end() -> None:
    clock = SteppedClock()
    policy = policy_of({"errors.retry.timeout": "1000"}, clock)
    call = Failing(100, RetriableFault("down"), clock)

    with pytest.raises(RetriableFault):
        await policy.retried(call)

    assert call.pauses_s == pytest.approx([0.3, 0.6, 0.1])


async def test_no_pause_is_longer_than_the_longest() -> None:
    clock = SteppedClock()
    policy = policy_of({"errors.retry.timeout": "-1", "errors.retry.delay.max.ms": "1000"}, clock)

    call = Failing(200, RetriableFault("down"), clock)

    assert await policy.retried(call) == "done"

    assert max(call.pauses_s) <= 1
    assert sum(call.pauses_s) > 90


async def test_a_task_that_is_to_end_tries_nothing_again() -> None:
    policy = policy_of({"errors.retry.timeout": "-1"})
    policy.is_over = lambda: True
    call = Failing(200, RetriableFault("down"))

    with pytest.raises(RetriableFault):
        await policy.retried(call)

    assert len(call.called_s) == 1


async def test_dead_letters_wait_until_their_records_are_durable() -> None:
    policy = policy_of(DEAD)
    for offset in (3, 5):
        record = LogRecord("t", 0, None, b"%d" % offset, offset=offset)
        await policy.report(record, DataFault("no"), VALUE_CONVERTER, "C")

    place = TopicPartition("t", 0)
    assert [one.value for one in policy.drain({place: 3})] == []
    assert [one.value for one in policy.drain({place: 5})] == [b"3"]
    assert [one.value for one in policy.drain({place: 6})] == [b"5"]


@pytest.mark.parametrize(
    ("error", "config"),
    [(RetriableFault("down"), {}), (DataFault("bad"), {"errors.retry.timeout": "60000"})],
)
async def test_what_is_not_repeated_is_called_once(
    error: Exception, config: dict[str, str]
) -> None:
    call = Failing(1, error)

    with pytest.raises(type(error)):
        await policy_of(config).retried(call)

    assert len(call.called_s) == 1


async def test_without_tolerance_the_task_stops_and_says_where() -> None:
    policy = policy_of({})

    with pytest.raises(StoppedAt) as stopped:
        await policy.report(RECORD, DataFault("not JSON"), VALUE_CONVERTER, "JsonConverter")

    assert isinstance(stopped.value, TaskFault)
    for said in ("VALUE_CONVERTER", "orders-2 at offset 41", "DataException", "not JSON"):
        assert said in str(stopped.value)
    assert policy.drain() == []


async def test_a_dead_letter_is_the_record_as_it_was_with_ten_headers_and_a_count() -> None:
    policy = policy_of(DEAD)
    try:
        raise DataFault("not JSON") from ValueError("line 1")
    except DataFault as error:
        await policy.report(RECORD, error, VALUE_CONVERTER, "org.x.Converter")

    [letter] = policy.drain()
    assert policy.drain() == []
    assert (letter.topic, letter.partition) == ("dead", None)
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b"v", 17)
    assert letter.headers[0] == ("h", b"1")
    assert [name for name, _ in letter.headers[1:]] == [*KAFKAS_HEADERS, "__riacho.errors.count"]
    said = {name: (value or b"").decode() for name, value in letter.headers[1:]}
    trace = said.pop("__connect.errors.exception.stacktrace")
    assert list(said.values()) == [
        "orders",
        "2",
        "41",
        "c",
        "3",
        "VALUE_CONVERTER",
        "org.x.Converter",
        "org.apache.kafka.connect.errors.DataException",
        "not JSON",
        "1",
    ]
    lines = trace.split("\n")
    assert lines[0] == "org.apache.kafka.connect.errors.DataException: not JSON"
    assert lines[1].startswith("\tat test_a_dead_letter")
    assert "Caused by: builtins.ValueError: line 1" in lines


async def test_a_record_that_a_sink_gives_up_is_dead_lettered_as_it_was_read() -> None:
    policy = policy_of(DEAD)
    changed = ConnectRecord(
        "elsewhere", 2, "k", {"v": 1}, origin=FromRawLog("orders", 2, 41, RECORD)
    )

    await policy.report_put(changed, DataFault("no such column"))

    [letter] = policy.drain()
    said = dict(letter.headers)
    assert (letter.key, letter.value) == (b"k", b"v")
    assert said["__connect.errors.topic"] == b"orders"
    assert said["__connect.errors.stage"] == b"TASK_PUT"
    assert said["__connect.errors.class.name"] == b"ListSink"


async def test_a_record_of_a_source_is_dead_lettered_as_json() -> None:
    policy = policy_of(DEAD)
    record = ConnectRecord(
        "rows",
        None,
        {"id": 7},
        {"at": object()},
        headers=(Header("h", 5),),
        origin=FromSource({"table": "t"}, {"id": 7}),
    )

    await policy.report(record, DataFault("no"), VALUE_CONVERTER, "C")

    [letter] = policy.drain()
    said = dict(letter.headers)
    assert letter.key == b'{"id":7}'
    assert b"object object" in (letter.value or b"")
    assert said["h"] == b"5"
    assert said["__connect.errors.partition"] == b'{"table":"t"}'
    assert said["__connect.errors.offset"] == b'{"id":7}'


async def test_who_is_given_up_again_is_counted() -> None:
    policy = policy_of(DEAD)
    again = LogRecord("orders", 0, None, b"v", (("__riacho.errors.count", b"2"),), offset=50)

    await policy.report(again, DataFault("no"), VALUE_CONVERTER, "C")

    [letter] = policy.drain()
    assert letter.headers[-1] == ("__riacho.errors.count", b"3")


async def test_without_context_headers_a_dead_letter_is_the_record_alone() -> None:
    config = {**DEAD, "errors.deadletterqueue.context.headers.enable": "false"}
    policy = policy_of(config)

    await policy.report(RECORD, DataFault("no"), VALUE_CONVERTER, "C")

    [letter] = policy.drain()
    assert letter.headers == RECORD.headers
    assert policy.errors == 1


async def test_it_logs_records_only_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        await policy_of(ALL).report(RECORD, DataFault("a"), VALUE_CONVERTER, "C")
        assert not caplog.records
        logged = {**ALL, "errors.log.enable": "true"}
        await policy_of(logged).report(RECORD, DataFault("b"), VALUE_CONVERTER, "C")
        with_records = {**logged, "errors.log.include.messages": "true"}
        await policy_of(with_records).report(RECORD, DataFault("c"), VALUE_CONVERTER, "C")

    first, second = (vars(record) for record in caplog.records)
    assert "record" not in first
    assert second["record"] == "orders-2 at offset 41"
    assert (second["stage"], second["connector"]) == (VALUE_CONVERTER, "c")


def test_dead_letters_need_tolerance() -> None:
    with pytest.raises(ConfigFault) as refused:
        policy_of({**DEAD, "errors.tolerance": "none"})

    assert list(refused.value.problems) == ["errors.deadletterqueue.topic.name"]
