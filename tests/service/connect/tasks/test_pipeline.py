"""Batches on their way through converters and transforms."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from service.connect.converters.plain import StringConverter
from service.connect.data.errors import DataFault, RetriableFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromSource, Header
from service.connect.data.schema import INT64, STRING, ConnectSchema
from service.connect.tasks.errors import ErrorPolicy, StoppedAt
from service.connect.tasks.pipeline import (
    Converters,
    SinkPipeline,
    sink_pipeline,
    source_pipeline,
)
from service.connect.transforms.choice import transforms_of
from tests.service.connect.tasks.clocks import SteppedClock

pytestmark = pytest.mark.anyio

ALL = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
}


def policy_of(config: dict[str, str], clock: SteppedClock | None = None) -> ErrorPolicy:
    return ErrorPolicy("c", 0, config, (clock or SteppedClock()).world)


def log_record(offset: int, value: bytes | None, **more: Any) -> LogRecord:
    return LogRecord("t", 0, b"1", value, offset=offset, **more)


async def test_without_converters_the_default_is_json_without_schemas() -> None:
    pipeline = sink_pipeline({}, None, policy_of({}))

    [record] = await pipeline.from_log([log_record(5, b'{"a":1}', headers=(("h", b"7"),))])

    assert record is not None
    assert (record.key, record.value, record.value_schema) == (1, {"a": 1}, None)
    assert record.headers[0].value == 7
    assert (record.topic, record.partition) == ("t", 0)


async def test_what_a_source_writes_a_sink_reads() -> None:
    config = {"key.converter": "LongConverter", "value.converter": "StringConverter"}
    record = ConnectRecord(
        "t", 3, 9, "text", INT64, STRING, 88, (Header("h", "x"),), FromSource({}, {})
    )

    [stored] = await source_pipeline(config, None, policy_of({})).to_log([record])
    assert stored is not None
    assert (stored.partition, stored.key, stored.timestamp_ms) == (3, (9).to_bytes(8), 88)
    [read] = await sink_pipeline(config, None, policy_of({})).from_log([stored])

    assert read is not None
    assert (read.key, read.value, read.timestamp_ms) == (9, "text", 88)
    assert (read.headers[0].key, read.headers[0].value) == ("h", "x")


async def test_bad_records_become_dead_letters_and_the_others_go_on() -> None:
    policy = policy_of(ALL)
    batch = [log_record(n, b"{" if n % 143 == 7 else b"%d" % n) for n in range(1000)]

    found = await sink_pipeline({}, None, policy).from_log(batch)

    assert [n for n, record in enumerate(found) if record is None] == list(range(7, 1000, 143))
    letters = policy.drain()
    assert len(letters) == 7
    said = [dict(letter.headers) for letter in letters]
    assert [each["__connect.errors.offset"] for each in said] == [
        b"%d" % n for n in range(7, 1000, 143)
    ]
    assert {each["__connect.errors.stage"] for each in said} == {b"VALUE_CONVERTER"}
    assert {each["__connect.errors.class.name"] for each in said} == {
        b"org.apache.kafka.connect.json.JsonConverter"
    }


async def test_without_tolerance_it_stops_at_the_record_and_has_those_before() -> None:
    batch = [log_record(0, b"0"), log_record(1, b"1"), log_record(2, b"{"), log_record(3, b"3")]

    with pytest.raises(StoppedAt, match="t-0 at offset 2") as stopped:
        await sink_pipeline({}, None, policy_of({})).from_log(batch)

    assert [one.value for one in stopped.value.before if one is not None] == [0, 1]


async def test_transforms_change_drop_and_fail() -> None:
    def chain(record: ConnectRecord) -> ConnectRecord | None:
        if record.value == 1:
            return None
        if record.value == 2:
            raise DataFault("no such field")
        if record.value == 3:
            raise KeyError("a bug")
        return msgspec.structs.replace(record, topic="other")

    policy = policy_of(ALL)
    batch = [log_record(n, b"%d" % n) for n in range(4)]

    found = await sink_pipeline({}, chain, policy).from_log(batch)

    assert [record and record.topic for record in found] == ["other", None, None, None]
    letters = [dict(letter.headers) for letter in policy.drain()]
    assert [each["__connect.errors.exception.class.name"] for each in letters] == [
        b"org.apache.kafka.connect.errors.DataException",
        b"builtins.KeyError",
    ]
    assert {each["__connect.errors.stage"] for each in letters} == {b"TRANSFORMATION"}
    assert {each["__connect.errors.topic"] for each in letters} == {b"t"}


async def test_a_dead_letter_names_the_transform_that_failed() -> None:
    config = {"transforms": "x", "transforms.x.type": "Cast$Value", "transforms.x.spec": "n:int8"}
    policy = policy_of(ALL)

    await sink_pipeline({}, transforms_of(config), policy).from_log([log_record(0, b'{"n":"?"}')])

    [letter] = policy.drain()
    name = dict(letter.headers)["__connect.errors.class.name"]
    assert name == b"org.apache.kafka.connect.transforms.Cast$Value"


async def test_a_source_drops_and_keeps_the_places_of_the_others() -> None:
    def chain(record: ConnectRecord) -> ConnectRecord | None:
        return None if record.value == 1 else record

    policy = policy_of(ALL)
    values = [0, 1, object(), 3]
    records = [ConnectRecord("t", None, None, v, origin=FromSource({}, {})) for v in values]

    found = await source_pipeline({}, chain, policy).to_log(records)

    assert [one and one.value for one in found] == [b"0", None, None, b"3"]
    [letter] = policy.drain()
    assert dict(letter.headers)["__connect.errors.stage"] == b"VALUE_CONVERTER"


class _Unsure(StringConverter):
    """A converter that may succeed later."""

    def __init__(self, fails: int, prepare_fails: int = 0) -> None:
        super().__init__()
        self.fails = fails
        self.prepare_fails = prepare_fails

    async def prepare(self, topic: str, batch: Sequence[bytes | None]) -> None:
        if self.prepare_fails > 0:
            self.prepare_fails -= 1
            raise RetriableFault("the registry is away")

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        if data == b"unsure" and self.fails > 0:
            self.fails -= 1
            raise RetriableFault("later")
        return super().to_data(topic, data)


def unsure(converter: _Unsure, policy: ErrorPolicy) -> SinkPipeline:
    converters = Converters({"key.converter": "StringConverter"})
    converters.value = converter
    return SinkPipeline(converters, None, policy)


async def test_what_may_succeed_later_is_tried_again() -> None:
    clock = SteppedClock()
    policy = policy_of({"errors.retry.timeout": "5000"}, clock)
    pipeline = unsure(_Unsure(3, prepare_fails=2), policy)

    found = await pipeline.from_log([log_record(0, b"unsure"), log_record(1, b"fine")])

    assert [one and one.value for one in found] == ["unsure", "fine"]
    assert sum(clock.slept_s) == pytest.approx(0.3 + 0.6 + 0.3 + 0.6 + 1.2)


async def test_a_record_that_never_succeeds_is_given_up_after_the_timeout() -> None:
    clock = SteppedClock()
    policy = policy_of({**ALL, "errors.retry.timeout": "1000"}, clock)

    found = await unsure(_Unsure(100), policy).from_log(
        [log_record(0, b"unsure"), log_record(1, b"fine")]
    )

    assert [one and one.value for one in found] == [None, "fine"]
    assert sum(clock.slept_s) == pytest.approx(1.0)
    [letter] = policy.drain()
    name = dict(letter.headers)["__connect.errors.exception.class.name"]
    assert name == b"org.apache.kafka.connect.errors.RetriableException"


async def test_a_registry_that_is_away_gives_up_no_record() -> None:
    policy = policy_of(ALL)

    with pytest.raises(RetriableFault):
        await unsure(_Unsure(0, prepare_fails=100), policy).from_log([log_record(0, b"x")])

    assert policy.drain() == []
