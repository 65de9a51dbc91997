"""Chains of transforms, as configurations describe them."""

import pytest

from service.connect.config.keys import Config
from service.connect.data.errors import ConfigFault
from service.connect.data.records import ConnectRecord
from service.connect.transforms.choice import (
    PREDICATES,
    TRANSFORMS,
    predicate_kind,
    transform_kind,
    transforms_of,
)

RENAME = {
    "transforms.a.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.a.regex": "(.*)-(?<of>eu)",
    "transforms.a.replacement": "${of}.$1",
}


def record(topic: str = "orders-eu", value: object = 1) -> ConnectRecord:
    return ConnectRecord(topic, None, None, value)


def test_kafkas_classes_are_known_by_both_names() -> None:
    assert len(TRANSFORMS) == 16 + 10, "all 16, ten of them for keys and for values"
    assert len(PREDICATES) == 3
    for kind in TRANSFORMS:
        assert transform_kind(kind.class_name) is transform_kind(kind.short_name) is kind
    for predicate in PREDICATES:
        assert predicate_kind(predicate.class_name) is predicate_kind(predicate.short_name)
    assert transform_kind("MaskField") is None


def test_transforms_apply_in_order() -> None:
    config = {
        "transforms": "a, b",
        **RENAME,
        "transforms.b.type": "HoistField$Value",
        "transforms.b.field": "f",
    }
    changed = transforms_of(config)(record())
    assert changed is not None
    assert (changed.topic, changed.value) == ("eu.orders", {"f": 1})
    assert transforms_of({})(record()) == record()


@pytest.mark.parametrize(("negate", "dropped"), [("false", True), ("true", False)])
def test_a_predicate_chooses_the_records(negate: str, dropped: bool) -> None:
    config = {
        "transforms": "drop",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "empty",
        "transforms.drop.negate": negate,
        "predicates": "empty",
        "predicates.empty.type": "RecordIsTombstone",
    }
    chain = transforms_of(config)
    assert (chain(record(value=None)) is None) is dropped
    assert (chain(record(value=1)) is None) is not dropped


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"transforms": "a"}, ["transforms.a.type"]),
        ({"transforms": "a,a", **RENAME}, ["transforms"]),
        ({"transforms": "a", **RENAME, "transforms.a.regex": "(?=x)"}, ["transforms.a.regex"]),
        ({"transforms": "a", **RENAME, "transforms.a.regex": "("}, ["transforms.a.regex"]),
        (
            {"transforms": "a", **RENAME, "transforms.a.replacement": "$4"},
            ["transforms.a.replacement"],
        ),
        ({"transforms": "a", **RENAME, "transforms.a.negate": "true"}, ["transforms.a.negate"]),
        ({"transforms": "a", **RENAME, "transforms.a.predicate": "p"}, ["transforms.a.predicate"]),
        (
            {"transforms": "a,b", "transforms.a.type": "Cast$Value", "transforms.b.type": "No"},
            ["transforms.a.spec", "transforms.b.type"],
        ),
        ({"predicates": "p", "predicates.p.type": "HasHeaderKey"}, ["predicates.p.name"]),
    ],
)
def test_what_is_wrong_is_named(config: Config, keys: list[str]) -> None:
    with pytest.raises(ConfigFault) as refused:
        transforms_of(config)
    assert sorted(refused.value.problems) == keys


@pytest.mark.parametrize(
    ("kind", "config", "key"),
    [
        ("Cast$Value", {"spec": "a:int9"}, "spec"),
        ("Cast$Value", {"spec": "int8,a:int8"}, "spec"),
        ("Cast$Value", {"spec": ""}, "spec"),
        ("DropHeaders", {"headers": ""}, "headers"),
        ("ExtractField$Key", {"field": "`a", "field.syntax.version": "v2"}, "field"),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b,c", "operation": "copy"}, "headers"),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b", "operation": "cut"}, "operation"),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b", "operation": "MOVE"}, "operation"),
        ("InsertField$Key", {}, "topic.field"),
        ("InsertField$Key", {"static.field": "a"}, "static.value"),
        ("MaskField$Value", {"fields": "a", "replacement": ""}, "replacement"),
        ("ReplaceField$Value", {"renames": "a:b:c"}, "renames"),
        ("SetSchemaMetadata$Value", {}, "schema.name"),
        ("TimestampConverter$Value", {"target.type": "string"}, "format"),
        ("TimestampConverter$Value", {"target.type": "unix", "format": "yy n"}, "format"),
        ("TimestampConverter$Value", {"target.type": "date"}, "target.type"),
        ("TimestampRouter", {"timestamp.format": "YYYY"}, "timestamp.format"),
    ],
)
def test_a_wrong_value_is_named(kind: str, config: Config, key: str) -> None:
    settings = {f"transforms.a.{name}": text for name, text in config.items()}
    with pytest.raises(ConfigFault) as refused:
        transforms_of({"transforms": "a", "transforms.a.type": kind, **settings})
    assert list(refused.value.problems) == [f"transforms.a.{key}"]
