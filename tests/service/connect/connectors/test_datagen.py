"""Made-up records: the same for the same seed, each once, of the asked shape and pace."""

import asyncio
import json
import re
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pytest

from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.datagen.quickstarts import QUICKSTARTS
from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import ConfigFault
from service.connect.data.schema import Type
from service.world.clock import real_world
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial, environment

pytestmark = pytest.mark.anyio


def trial_of(**config: str) -> SourceTrial:
    plugin = plugin_of("io.confluent.kafka.connect.datagen.DatagenConnector")
    assert plugin is not None
    keys = {key.replace("_", "."): text for key, text in config.items()}
    return SourceTrial(
        plugin, {"kafka.topic": "t", "max.interval": "0", **keys}, environment(), tasks_max=2
    )


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "a.R", "fields": fields})


def field(name: str, of: Any, **properties: Any) -> dict[str, Any]:
    if properties:
        of = {**(of if isinstance(of, dict) else {"type": of}), "arg.properties": properties}
    return {"name": name, "type": of}


async def made(text: str, count: int = 200, **config: str) -> list[Any]:
    trial = trial_of(schema_string=text, random_seed="7", **config)
    await trial.run(lambda: len(trial.records) >= count)
    return trial.values


@pytest.mark.parametrize("name", QUICKSTARTS)
async def test_every_quickstart_fits_its_schema(name: str) -> None:
    trial = trial_of(quickstart=name, iterations="50")
    await trial.run(lambda: len(trial.records) >= 50)

    converter = JsonConverter()
    for record in trial.records:
        assert record.key == record.value[QUICKSTARTS[name].key_field]
        data = converter.to_bytes("t", record.value_schema, record.value)
        assert converter.to_data("t", data) == (record.value_schema, record.value)
        assert converter.to_bytes("t", record.key_schema, record.key)


@pytest.mark.parametrize("crash", SourceCrash)
@pytest.mark.parametrize("seed", ["7", None])
async def test_each_record_once_whatever_dies(crash: SourceCrash, seed: str | None) -> None:
    config = {"quickstart": "orders", "iterations": "100"} | ({"random_seed": seed} if seed else {})
    trial = trial_of(**config)

    for n in range(1, 4):
        await trial.run(lambda: False, crash=crash, crash_at=n, records_max=7)
    await trial.run(lambda: len(trial.records) >= 100, records_max=7)
    before = trial.polls
    await trial.run(lambda: trial.polls > before + 2)

    assert [value["orderid"] for value in trial.values] == list(range(100))
    if seed:
        again = trial_of(**config)
        await again.run(lambda: len(again.records) >= 100)
        assert again.values == trial.values


async def test_tasks_make_different_records() -> None:
    trial = trial_of(quickstart="users", iterations="20", random_seed="1")
    await trial.run(lambda: len(trial.records) >= 20)
    await trial.run(lambda: len(trial.records) >= 40, task=1)

    assert trial.values[:20] != trial.values[20:]


async def test_the_pace_is_half_of_the_longest_interval() -> None:
    now_s = [0.0]

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds
        await asyncio.sleep(0)

    trial = trial_of(quickstart="users", max_interval="1000", random_seed="1")
    world = replace(real_world(), sleep=sleep, monotonic_s=lambda: now_s[0])
    trial.environment = environment(world=world)

    await trial.run(lambda: now_s[0] >= 1000, wait_s=0.3)

    assert 1900 < len(trial.records) < 2100


async def test_properties_of_avro_decide() -> None:
    values = await made(
        schema(
            field("option", "string", options=["a", "b"]),
            field("ranged", "int", range={"min": -3, "max": 3}),
            field("real", "double", range={"min": 5, "max": 6}),
            field("counted", "long", iteration={"start": 10, "step": 5, "restart": 30}),
            field("like", "string", regex=r"[A-C]{2}-\d{3}\.[x_]?"),
            field("list", {"type": "array", "items": "int"}, length={"min": 1, "max": 4}),
            field("map", {"type": "map", "values": "boolean"}, length=2),
            field("kind", {"type": "enum", "name": "K", "symbols": ["X", "Y"]}),
            field("digest", {"type": "fixed", "name": "F", "size": 4}),
            field("maybe", ["null", "string"]),
            field("day", {"type": "int", "logicalType": "date"}),
            field("at", {"type": "long", "logicalType": "timestamp-millis"}),
            field("never", "boolean", odds=0),
        )
    )

    assert {value["option"] for value in values} == {"a", "b"}
    assert {value["ranged"] for value in values} == set(range(-3, 3))
    assert all(5 <= value["real"] < 6 for value in values)
    assert [value["counted"] for value in values[:6]] == [10, 15, 20, 25, 10, 15]
    assert all(re.fullmatch(r"[A-C]{2}-\d{3}\.[x_]?", value["like"]) for value in values)
    assert {len(value["list"]) for value in values} == {1, 2, 3}
    assert {len(value["map"]) for value in values} == {2}
    assert {value["kind"] for value in values} == {"X", "Y"}
    assert {len(value["digest"]) for value in values} == {4}
    assert 0 < sum(value["maybe"] is None for value in values) < 200
    assert {type(value["day"]) for value in values} == {date}
    assert {type(value["at"]) for value in values} == {datetime}
    assert not any(value["never"] for value in values)


async def test_the_schema_is_connects() -> None:
    trial = trial_of(schema_string=schema(field("a", ["null", "long"])), schema_keyfield="a")
    await trial.run(lambda: bool(trial.records))

    record = trial.records[0]
    assert record.value_schema is not None
    assert record.value_schema.name == "a.R"
    assert record.key_schema is not None
    assert (record.key_schema.type, record.key_schema.is_optional) == (Type.INT64, True)


NESTED: Any = "int"
for _ in range(6):
    NESTED = {"type": "array", "items": NESTED, "arg.properties": {"length": 10}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no schema", "not Avro"),
        ('"string"', "must be a record"),
        (schema(field("a", ["int", "string"])), "union"),
        (schema(field("a", "null")), "null alone"),
        (schema(field("a", {"type": "array", "items": "a.R"})), "contains itself"),
        (schema(field("a", NESTED)), "parts"),
        (schema(field("a", "string", length=10**6)), "length"),
        (schema(field("a", "string", regex="(a|b)")), "regex"),
        (schema(field("a", "string", regex="a{9999}")), "characters"),
        (schema(field("a", "int", range={"min": 5, "max": 5})), "range"),
        (schema(field("a", "int", range={"min": "x"})), "not a number"),
        (schema(field("a", "int", options=["x"])), "option"),
        (schema(field("a", "int", options=[])), "options"),
        (schema(field("a", "long", iteration={"step": 0})), "iteration"),
        (schema(field("a", {"type": "fixed", "name": "F", "size": 10**8})), "bytes"),
    ],
)
def test_schemas_that_cannot_be_made_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigFault, match=words):
        trial_of(schema_string=text).check()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quickstart": "nothing"},
        {"quickstart": "users", "schema_string": schema(field("a", "int"))},
        {"quickstart": "users", "schema_keyfield": "nothing"},
        {"quickstart": "users", "max_interval": "-1"},
    ],
)
def test_wrong_configurations_are_refused(config: dict[str, str]) -> None:
    with pytest.raises(ConfigFault):
        trial_of(**config).check()
