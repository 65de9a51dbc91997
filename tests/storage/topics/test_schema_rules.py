"""Settings about schemas: Confluent's and ours, and what they mean together."""

import pytest

from storage.errors import InvalidConfig
from storage.topics.config import TopicConfig, parse_config
from storage.topics.schema_rules import SchemaRule, Strategy

RECORD = "io.confluent.kafka.serializers.subject.RecordNameStrategy"


def rules(**given: str) -> list[SchemaRule]:
    config = parse_config({name.replace("__", "."): text for name, text in given.items()})
    return [*TopicConfig(config).schema_rules]


def test_a_topic_asks_for_no_schema_unless_it_says_so() -> None:
    assert rules() == []
    assert rules(value__schema__subject="s", confluent__key__subject__name__strategy=RECORD) == []
    assert rules(confluent__key__schema__validation="false", key__schema__validation="none") == []


def test_the_stricter_of_two_settings_holds() -> None:
    both = rules(confluent__value__schema__validation="true", value__schema__validation="full")
    assert [(rule.part, rule.checks_data) for rule in both] == [("value", True)]
    assert rules(confluent__value__schema__validation="true") == rules(
        value__schema__validation="id"
    )


def test_keys_and_values_have_rules_of_their_own() -> None:
    key, value = rules(
        confluent__key__schema__validation="true",
        confluent__key__subject__name__strategy=RECORD,
        value__schema__validation="full",
        value__schema__subject=":.staging:注文/a",
    )
    assert (key.part, key.checks_data, key.strategy) == ("key", False, Strategy.RECORD)
    assert (value.part, value.subject, value.strategy) == (
        "value",
        ":.staging:注文/a",
        Strategy.TOPIC,
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("confluent.value.schema.validation", "yes", "must be one of false, true, not 'yes'"),
        ("key.schema.validation", "ID", "must be one of none, id, full, not 'ID'"),
        (
            "confluent.key.subject.name.strategy",
            "TopicNameStrategy",
            "must be one of io.confluent.kafka.serializers.subject.TopicNameStrategy,",
        ),
        ("value.schema.subject", "a\n", "must be the name of a subject"),
        ("value.schema.subject", "é" * 3000, "must be the name of a subject"),
        ("value.schema.validations", "id", "did you mean 'value.schema.validation'?"),
    ],
)
def test_an_unknown_value_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match="config: ") as refused:
        parse_config({name: text})
    assert name in str(refused.value)
    assert why in str(refused.value)
