"""Topic configuration: every key, its valid values, and the errors for others."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidConfig
from storage.topics.config import SETTINGS, TopicConfig, parse_config
from storage.topics.kept import KEPT
from storage.topics.schema_rules import SCHEMA_SETTINGS
from storage.topics.setting import INT64_MAX
from tests.examples import some

ACCEPTED = {
    "cleanup.policy": {
        "delete": "delete",
        "delete, compact": "compact,delete",
        "compact": "compact",
    },
    "compression.type": {"producer": "producer", "uncompressed": "uncompressed", "none": "none"},
    "delete.retention.ms": {0: "0", "5": "5"},
    "encryption": {"none": "none", "topic": "topic"},
    "encryption.kek": {
        "": "",
        "file:one.key": "file:one.key",
        "aws-kms:arn:aws:kms:eu-west-1:123456789012:key/1-2": (
            "aws-kms:arn:aws:kms:eu-west-1:123456789012:key/1-2"
        ),
    },
    "lane.partitions": {1: "1", 64: "64"},
    "max.compaction.lag.ms": {1: "1", INT64_MAX: str(INT64_MAX)},
    "max.message.bytes": {0: "0", 2**31 - 1: str(2**31 - 1)},
    "message.timestamp.type": {"CreateTime": "CreateTime", "LogAppendTime": "LogAppendTime"},
    "min.cleanable.dirty.ratio": {0: "0", 1: "1", 0.25: "0.25", "0.5": "0.5"},
    "min.compaction.lag.ms": {0: "0", 7: "7"},
    "min.insync.replicas": {1: "1", "32": "32"},
    "replica.lag.time.max.ms": {100: "100", "600000": "600000"},
    "retention.bytes": {-1: "-1", 0: "0"},
    "retention.ms": {-1: "-1", INT64_MAX: str(INT64_MAX)},
    "riacho.kafka.slices": {"raw": "raw", "arrow": "arrow"},
    "segment.bytes": {1024 * 1024: "1048576"},
    "segment.ms": {1: "1"},
    "table.columns": {"true": "true", "false": "false"},
    "unclean.leader.election.enable": {"true": "true", "false": "false"},
    **{name: {setting.default: setting.default} for name, setting in KEPT.items()},
    **{name: {setting.default: setting.default} for name, setting in SCHEMA_SETTINGS.items()},
}
REFUSED: dict[str, dict[object, str]] = {
    "cleanup.policy": {
        "": "must be delete, compact or compact,delete, not ''",
        "delete,delete": "must be delete, compact or compact,delete",
        "none": "must be delete, compact or compact,delete",
    },
    "compression.type": {"lzo": "must be one of producer, uncompressed, gzip, snappy, lz4, zstd"},
    "delete.retention.ms": {-1: f"must be from 0 to {INT64_MAX}, not -1"},
    "encryption": {"all": "must be one of none, topic, not 'all'"},
    "encryption.kek": {
        "file:": "must be file:<path> or aws-kms:<arn of a key>, not 'file:'",
        "file:a\0b": "must be file:<path> or aws-kms:<arn of a key>",
        "one.key": "must be file:<path> or aws-kms:<arn of a key>, not 'one.key'",
        "aws-kms:arn:aws:s3:eu-west-1:123456789012:key/1": "must be file:<path> or aws-kms:",
    },
    "lane.partitions": {0: "must be from 1 to 64, not 0", 65: "must be from 1 to 64, not 65"},
    "max.compaction.lag.ms": {0: "must be from 1 to"},
    "max.message.bytes": {2**31: "must be from 0 to 2147483647", -1: "must be from 0"},
    "message.timestamp.type": {"createtime": "must be one of CreateTime, LogAppendTime"},
    "min.cleanable.dirty.ratio": {
        "1.5": "must be from 0 to 1, not 1.5",
        "nan": "must be from 0 to 1",
        "half": "must be a number from 0 to 1, not 'half'",
    },
    "min.compaction.lag.ms": {"soon": "must be a whole number, not 'soon'"},
    "min.insync.replicas": {0: "must be from 1 to 32, not 0", 33: "must be from 1 to 32"},
    "replica.lag.time.max.ms": {99: "must be from 100 to 600000", 600_001: "must be from 100"},
    "retention.bytes": {-2: "must be from -1 to"},
    "retention.ms": {2**63: "must be from -1 to", 1.5: "must be a whole number, not '1.5'"},
    "riacho.kafka.slices": {"kafka": "must be one of raw, arrow, not 'kafka'"},
    "segment.bytes": {1024: "must be from 1048576 to"},
    "segment.ms": {0: "must be from 1 to"},
    "table.columns": {"yes": "must be one of false, true, not 'yes'"},
    "unclean.leader.election.enable": {"yes": "must be one of false, true, not 'yes'"},
    **{name: {"yes": "must be "} for name in KEPT},
    # `test_schema_rules.py` has more of them.
    **{name: {"\n": "must be "} for name in SCHEMA_SETTINGS},
}


def test_every_setting_is_in_both_tables_and_its_default_is_valid() -> None:
    assert set(ACCEPTED) == set(REFUSED) == set(SETTINGS)
    for name, setting in SETTINGS.items():
        assert parse_config({name: setting.default}) == {name: setting.default}
        assert setting.about


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_values_are_accepted(name: str) -> None:
    for value, stored in ACCEPTED[name].items():
        assert parse_config({name: value}) == {name: stored}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_values_are_refused_with_the_name_of_the_key(name: str) -> None:
    for value, message in REFUSED[name].items():
        with pytest.raises(InvalidConfig) as refusal:
            parse_config({name: value})
        assert str(refusal.value).startswith(f"config: {name} {message}")


@pytest.mark.parametrize("value", [True, None, [], {}, b"1"])
def test_a_value_is_text_or_a_number(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"config: retention\.ms must be text or a number"):
        parse_config({"retention.ms": value})


def test_an_unknown_key_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidConfig, match=r"no setting 'retention\.m'; did you mean 'retention"):
        parse_config({"retention.m": 1})
    with pytest.raises(InvalidConfig, match=r"no setting 'zzz'; known are cleanup\.policy, "):
        parse_config({"zzz": 1})


@some
@given(st.sampled_from(sorted(SETTINGS)), st.text() | st.integers() | st.floats())
def test_any_value_is_refused_or_stored_so_that_it_parses_again(name: str, value: object) -> None:
    with suppress(InvalidConfig):
        parsed = parse_config({name: value})
        assert parse_config(parsed) == parsed


def test_settings_that_were_not_given_have_their_defaults() -> None:
    config = TopicConfig({"retention.ms": "5", "compression.type": "zstd"})

    assert config["retention.ms"] == "5"
    assert config.all() == {
        **{name: setting.default for name, setting in SETTINGS.items()},
        "retention.ms": "5",
        "compression.type": "zstd",
    }
    assert config.codec == "zstd"
    assert config.kafka_codec == "zstd"
    assert config.record_bytes_max == 1048588
    assert not config.stamps_appends
    assert not config.is_compacted
    other = TopicConfig(
        {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact,delete"}
    )
    assert other.stamps_appends
    assert other.is_compacted


def test_replication_settings_are_parsed() -> None:
    config = TopicConfig(
        parse_config(
            {
                "min.insync.replicas": 2,
                "replica.lag.time.max.ms": 2500,
                "unclean.leader.election.enable": "true",
            }
        )
    )

    assert (config.in_sync_min, config.lag_s_max, config.may_elect_unclean) == (2, 2.5, True)
    assert not TopicConfig({}).may_elect_unclean


def test_settings_without_effect_are_stored_and_shown_as_kafka_has_them() -> None:
    given = {
        "flush.ms": 1000,
        "preallocate": "true",
        "follower.replication.throttled.replicas": "0:1,12:3",
        "leader.replication.throttled.replicas": "*",
        "compression.zstd.level": -7,
    }

    shown = TopicConfig(parse_config(given)).all()

    assert {name: shown[name] for name in given} == {name: str(given[name]) for name in given}
    assert shown["segment.index.bytes"] == "10485760"
    assert not any(setting.has_effect for setting in KEPT.values())


@pytest.mark.parametrize(
    ("name", "arrow", "kafka"),
    [
        ("producer", "lz4", None),
        ("uncompressed", "none", "none"),
        ("none", "none", "none"),
        ("gzip", "zstd", "gzip"),
        ("snappy", "lz4", "snappy"),
        ("lz4", "lz4", "lz4"),
        ("zstd", "zstd", "zstd"),
    ],
)
def test_a_codec_that_arrow_lacks_becomes_the_one_most_like_it(
    name: str, arrow: str, kafka: str | None
) -> None:
    config = TopicConfig({"compression.type": name})
    assert (config.codec, config.kafka_codec) == (arrow, kafka)
