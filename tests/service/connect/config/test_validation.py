"""What is refused of a configuration, in which words, and what user interfaces are told."""

from dataclasses import replace
from typing import Any

import pytest

from service.connect.config.keys import Config, Importance, Key, KeyType
from service.connect.config.secrets import shown
from service.connect.config.validation import (
    CONFIG_CHARS_MAX,
    ConfigValidation,
    check_size,
    keys_body,
    validate,
)
from service.connect.connectors.api import Environment, Plugin, PluginKind, same_tasks
from service.connect.connectors.jdbc.plugins import JDBC_SOURCE
from service.world.clock import real_world

MASK = "org.apache.kafka.connect.transforms.MaskField$Value"


def never(*_: Any) -> Any:
    raise AssertionError


SINK = Plugin(
    kind=PluginKind.SINK,
    class_name="Shelf",
    version="1",
    about="Puts records on a shelf.",
    keys=(
        Key(name="connection.url", type=KeyType.STRING, importance=Importance.HIGH),
        Key(name="connection.password", type=KeyType.PASSWORD, default=None),
        Key(name="shelf", type=KeyType.INT, default=1, dependents=("connection.url",)),
    ),
    prefixes=("driver.",),
    ignored={"dialect.name": "the URL says it"},
    check=lambda config, _: {"shelf": "is full"} if config.get("shelf") == "13" else {},
    tasks=same_tasks,
    make=never,
    promises="nothing",
)
SOURCE = replace(SINK, kind=PluginKind.SOURCE)
GOOD = {
    "name": "c",
    "connector.class": "Shelf",
    "topics": "a,b",
    "connection.url": "jdbc:sqlite:x.db",
}


def checked(plugin: Plugin = SINK, /, **changes: str | None) -> ConfigValidation:
    given = {**GOOD, **{key.replace("__", "."): text for key, text in changes.items()}}
    config: Config = {key: text for key, text in given.items() if text is not None}
    if plugin.kind is PluginKind.SOURCE:
        config = {key: text for key, text in config.items() if key != "topics"}
    return validate(plugin, config, Environment(world=real_world()))


def errors(plugin: Plugin = SINK, /, **changes: str | None) -> list[str]:
    return checked(plugin, **changes).errors


def test_a_good_configuration_has_no_errors() -> None:
    assert errors() == []
    assert errors(SOURCE) == []
    accepted = {
        "driver__timeout": "5",
        "dialect__name": "x",
        "value__converter__schemas__enable": "false",
        "consumer__override__fetch__min__bytes": "1",
        "errors__tolerance": "ALL",
        "errors__deadletterqueue__topic__name": "dlq",
        "confluent__topic__bootstrap__servers": "localhost:9092",
    }
    assert errors(**accepted) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": None}, 'Missing required configuration "name" which has no default value.'),
        ({"tasks__max": "x"}, "Invalid value x for configuration tasks.max: "),
        ({"tasks__max": "0"}, "must be from 1 to"),
        ({"tasks__mx": "1"}, "there is no configuration 'tasks.mx' of this connector; did you"),
        ({"conection__url": "x"}, "did you mean"),
        ({"shelf": "13"}, "Invalid value 13 for configuration shelf: is full"),
        ({"errors__tolerance": "maybe"}, "must be one of none, all"),
        ({"errors__deadletterqueue__topic__name": "d"}, "unless errors.tolerance is all"),
        ({"value__converter": "com.example.Mine"}, "there is no converter 'com.example.Mine'"),
        ({"value__converter__schemas__enabel": "1"}, "'value.converter.schemas.enable'"),
        ({"value__converter__schemas__enable": "1"}, "is not true or false"),
        ({"connection__password": "hunter2"}, "${env:NAME}"),
        ({"driver__password": "hunter2"}, "${env:NAME}"),
        ({"connection__url": "jdbc:postgresql://u:hunter2@db/x"}, "has a password in it"),
        ({"connection__url": "jdbc:postgresql://db/x?user=u&password=hunter2"}, "has a password"),
        ({"producer__override__sasl__jaas__config": "hunter2"}, "${env:NAME}"),
        (
            {
                "value__converter": "io.confluent.connect.avro.AvroConverter",
                "value__converter__basic__auth__user__info": "ana:hunter2",
            },
            "${env:NAME}",
        ),
        ({"consumer__override__group__id": "g"}, "the group of a sink is connect-<name>"),
        ({"topics": "a b"}, "cannot name a topic"),
        ({"topics": None, "topics__regex": "("}, "no pattern of RE2"),
        ({"transforms": "m"}, 'Missing required configuration "transforms.m.type"'),
        ({"transforms": "m,m", "transforms__m__type": MASK}, "Duplicate alias provided."),
        ({"transforms": "m", "transforms__m__type": "Nope"}, "there is no transform 'Nope'"),
        ({"transforms__m__type": MASK}, "transforms does not list 'm'"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, str | None], told: str) -> None:
    found = errors(**changes)
    assert any(told in each for each in found), found
    assert not any("hunter2" in each for each in found)


def test_a_class_that_gives_secrets_is_none() -> None:
    [told] = errors(s3__credentials__provider__class="com.example.Chain")
    assert told == "there is no configuration 's3.credentials.provider.class' of this connector"


def test_the_converter_of_those_who_set_none_has_no_schemas() -> None:
    def shown_default(**changes: str) -> str:
        [found] = [
            each
            for each in checked(**changes).body()["configs"]
            if each["definition"]["name"] == "value.converter.schemas.enable"
        ]
        assert found["value"]["value"] == found["definition"]["default_value"]
        return str(found["definition"]["default_value"])

    assert shown_default() == "false"
    assert shown_default(value__converter="JsonConverter") == "true"


def test_credentials_of_a_registry_may_be_written_as_its_clients_have_them() -> None:
    avro = {"value__converter": "io.confluent.connect.avro.AvroConverter"}
    name = "value__converter__schema__registry__basic__auth__user__info"
    assert errors(**avro, **{name: "${env:REGISTRY}"}) == []
    [told] = errors(**avro, **{name: "ana:hunter2"})
    assert "${env:NAME}" in told


def test_topics_are_chosen_in_one_way() -> None:
    assert errors(topics=None) == ["Must configure one of topics or topics.regex"] * 2
    both = "topics and topics.regex are mutually exclusive options, but both are set."
    assert errors(topics__regex="x") == [both] * 2
    tolerant = {"errors__tolerance": "all", "errors__deadletterqueue__topic__name": "b"}
    [own] = errors(**tolerant)
    assert "would read itself" in own
    [own] = errors(**tolerant, topics=None, topics__regex=".*")
    assert "matches 'b'" in own


def test_transforms_bring_their_keys() -> None:
    mask = {"transforms": "m", "transforms__m__type": MASK, "transforms__m__fields": "a"}
    assert errors(**mask) == []
    known = {info.key.name for info in checked(**mask).infos}
    assert {"transforms.m.type", "transforms.m.fields", "transforms.m.negate"} <= known
    assert any("'transforms.m.fields'" in e for e in errors(**mask, transforms__m__feilds="b"))
    assert any("no predicate 'p'" in e for e in errors(**mask, transforms__m__predicate="p"))
    predicate = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
    chosen = {"predicates": "p", "predicates__p__type": predicate, "transforms__m__predicate": "p"}
    assert errors(**mask, **chosen) == []


def test_secrets_are_references_and_shown_as_such() -> None:
    secret = {"connection__password": "${env:PW}", "connection__url": "jdbc:x://u:${env:PW}@h/d"}
    assert errors(**secret) == []
    keys = {key.name: key for key in SINK.keys}
    config = {"connection.password": "hunter2", "shelf": "1", "driver.password": "${file:/x}"}
    assert shown(config, keys) == {**config, "connection.password": "[hidden]"}
    values = [each["value"] for each in checked(connection__password="hunter2").body()["configs"]]
    assert "hunter2" not in str(values)


def test_a_form_can_be_made_of_the_answer() -> None:
    body = checked(shelf="x").body()
    assert (body["name"], body["error_count"]) == ("Shelf", 1)
    assert body["groups"][:4] == ["Common", "Transforms", "Predicates", "Error Handling"]
    [shelf] = [each for each in body["configs"] if each["definition"]["name"] == "shelf"]
    told = "Invalid value x for configuration shelf: 'x' is not a whole number"
    assert shelf == {
        "definition": {
            "name": "shelf",
            "type": "INT",
            "required": False,
            "default_value": "1",
            "importance": "MEDIUM",
            "documentation": "",
            "group": None,
            "order_in_group": 3,
            "width": "MEDIUM",
            "display_name": "shelf",
            "dependents": ["connection.url"],
        },
        "value": {
            "name": "shelf",
            "value": "x",
            "recommended_values": [],
            "errors": [told],
            "visible": True,
        },
    }
    assert {each["name"] for each in keys_body(SINK)} >= {"name", "topics", "shelf"}


def test_topics_of_sources_are_created_as_their_group_says() -> None:
    group = {"topic__creation__groups": "logs", "topic__creation__logs__include": "log.*"}
    missing = errors(SOURCE, **group)
    assert [each.split('"')[1] for each in missing] == [
        "topic.creation.default.replication.factor",
        "topic.creation.default.partitions",
    ]
    default = {
        "topic__creation__default__replication__factor": "1",
        "topic__creation__default__partitions": "2",
        "topic__creation__logs__cleanup__policy": "compact",
    }
    assert errors(SOURCE, **group, **default) == []


def test_a_configuration_has_a_limit() -> None:
    assert check_size(GOOD) is None
    assert "characters" in str(check_size({"a": "x" * CONFIG_CHARS_MAX}))
    assert "keys" in str(check_size({str(n): "" for n in range(2000)}))


@pytest.mark.parametrize(
    ("key", "given", "why"),
    [
        ("transaction__boundary", "connector", "does not define transaction boundaries"),
        ("transaction__boundary", "interval", ""),
        ("exactly__once__support", "required", "required cannot be promised: shelves fall"),
        ("exactly__once__support", "requested", ""),
    ],
)
def test_what_a_source_cannot_promise_is_refused(key: str, given: str, why: str) -> None:
    weak = replace(SOURCE, why_not_once=lambda _: "shelves fall")
    errors = checked(weak, **{key: given}).errors
    assert bool(errors) == bool(why)
    assert why in "".join(errors)
    assert not checked(SOURCE, exactly__once__support="required").errors


@pytest.mark.parametrize("mode", ["bulk", "timestamp", "incrementing", "timestamp+incrementing"])
def test_the_jdbc_source_promises_once_where_it_holds(mode: str) -> None:
    why = JDBC_SOURCE.why_not_once({"mode": mode})
    assert bool(why) == (mode in ("bulk", "timestamp"))
