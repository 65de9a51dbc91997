"""Settings as Kafka shows them: of topics, brokers and groups, with types and sources. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from service.groups.coordinator import SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN
from service.settings import Settings
from service.transactions.transactions import TIMEOUT_MS_MAX
from storage.topics.config import SETTINGS, TopicConfig


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    kind: ConfigType
    source: ConfigSource
    about: str
    is_read_only: bool = False
    synonyms: Sequence[tuple[str, str, ConfigSource]] = ()
    """Name, value and source of what decides the value, the most specific first."""


def _named(kind: ConfigType, names: str) -> dict[str, ConfigType]:
    return dict.fromkeys(names.split(), kind)


TOPIC_TYPES: Final[Mapping[str, ConfigType]] = {
    **_named(
        ConfigType.BOOLEAN,
        "confluent.key.schema.validation confluent.value.schema.validation"
        " message.downconversion.enable preallocate remote.log.copy.disable"
        " remote.log.delete.on.disable remote.storage.enable table.columns"
        " unclean.leader.election.enable",
    ),
    **_named(
        ConfigType.INT,
        "compression.gzip.level compression.lz4.level compression.zstd.level"
        " index.interval.bytes lane.partitions max.message.bytes min.insync.replicas"
        " segment.bytes segment.index.bytes",
    ),
    **_named(
        ConfigType.LONG,
        "delete.retention.ms file.delete.delay.ms flush.messages flush.ms local.retention.bytes"
        " local.retention.ms max.compaction.lag.ms message.timestamp.after.max.ms"
        " message.timestamp.before.max.ms min.compaction.lag.ms replica.lag.time.max.ms"
        " retention.bytes retention.ms segment.jitter.ms segment.ms",
    ),
    **_named(ConfigType.DOUBLE, "min.cleanable.dirty.ratio"),
    **_named(
        ConfigType.LIST,
        "cleanup.policy follower.replication.throttled.replicas"
        " leader.replication.throttled.replicas",
    ),
    **_named(
        ConfigType.CLASS,
        "confluent.key.subject.name.strategy confluent.value.subject.name.strategy",
    ),
}
"""The types of topic settings; those that are not here are strings."""

BROKER_NAMES: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "replica.lag.time.max.ms": "replica.lag.time.max.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""By topic setting: the name that Kafka's brokers have for its default."""

LISTS: Final = frozenset(n for n, kind in TOPIC_TYPES.items() if kind is ConfigType.LIST)
"""Settings that one can append to and subtract from."""


def topic_entries(config: TopicConfig) -> list[ConfigEntry]:
    """Return all settings of a topic, defaults included, by name."""
    return [_topic_entry(config, name) for name in sorted(SETTINGS)]


def _topic_entry(config: TopicConfig, name: str) -> ConfigEntry:
    setting = SETTINGS[name]
    is_given = name in config.given
    synonyms = [(name, config[name], ConfigSource.TOPIC)] if is_given else []
    if name in BROKER_NAMES:
        synonyms.append((BROKER_NAMES[name], setting.default, ConfigSource.DEFAULT))
    return ConfigEntry(
        name=name,
        value=config[name],
        kind=TOPIC_TYPES.get(name, ConfigType.STRING),
        source=ConfigSource.TOPIC if is_given else ConfigSource.DEFAULT,
        about=setting.about if setting.has_effect else f"{setting.about}; without effect here",
        is_read_only=setting.fixed,
        synonyms=synonyms,
    )


Row: TypeAlias = tuple[str, object, ConfigType, str]
"""Name, value, type, and what it is about."""

_HOURS: Final = int(SETTINGS["retention.ms"].default) // 3_600_000

_BROKER_FACTS: Final[Sequence[Row]] = [
    ("log.dirs", "riacho", ConfigType.STRING, "objects and table, as one directory"),
    ("log.retention.hours", _HOURS, ConfigType.INT, "the default of retention.ms"),
    ("delete.topic.enable", "true", ConfigType.BOOLEAN, "whether topics can be deleted"),
    ("inter.broker.protocol.version", "4.0-IV3", ConfigType.STRING, "which Kafka this is like"),
    ("group.min.session.timeout.ms", SESSION_TIMEOUT_MS_MIN, ConfigType.INT, "shortest session"),
    ("group.max.session.timeout.ms", SESSION_TIMEOUT_MS_MAX, ConfigType.INT, "longest session"),
    ("transaction.max.timeout.ms", TIMEOUT_MS_MAX, ConfigType.INT, "longest transaction"),
]


def broker_entries(
    settings: Settings, *, node_id: int, address: str, zone_count: int
) -> list[ConfigEntry]:
    """Return the settings of a broker that programs ask for, by name."""
    defaults: Sequence[Row] = [
        (
            broker_name,
            SETTINGS[name].default,
            TOPIC_TYPES.get(name, ConfigType.STRING),
            f"the default of {name}",
        )
        for name, broker_name in BROKER_NAMES.items()
    ]
    factor = min(settings.kafka_replication_factor, zone_count)
    creates = str(settings.kafka_auto_create).lower()
    offsets_minutes = settings.offsets_retention_minutes
    producers_ms = settings.producer_id_expiration_ms
    chosen: Sequence[Row] = [
        ("broker.id", node_id, ConfigType.INT, "the number of this gateway"),
        ("node.id", node_id, ConfigType.INT, "the number of this gateway"),
        ("advertised.listeners", address, ConfigType.STRING, "where clients reach it"),
        ("num.partitions", settings.kafka_num_partitions, ConfigType.INT, "of new topics"),
        ("default.replication.factor", factor, ConfigType.INT, "of new topics"),
        ("auto.create.topics.enable", creates, ConfigType.BOOLEAN, "create what is asked for"),
        ("offsets.retention.minutes", offsets_minutes, ConfigType.INT, "of groups without members"),
        ("producer.id.expiration.ms", producers_ms, ConfigType.INT, "of idle producers"),
        *(
            (f"group.{name}", value, ConfigType.INT, about)
            for name, value, about in _group_rows(settings)
        ),
    ]
    found = [_broker_entry(row, ConfigSource.DEFAULT) for row in [*defaults, *_BROKER_FACTS]]
    found += [_broker_entry(row, ConfigSource.STATIC_BROKER) for row in chosen]
    return sorted(found, key=lambda entry: entry.name)


def _broker_entry(row: Row, source: ConfigSource) -> ConfigEntry:
    name, value, kind, about = row
    return ConfigEntry(
        name=name,
        value=str(value),
        kind=kind,
        source=source,
        about=about,
        is_read_only=True,
        synonyms=[(name, str(value), source)],
    )


def group_entries(settings: Settings) -> list[ConfigEntry]:
    """Return the settings of every group whose members use Kafka's newer protocol."""
    return [
        ConfigEntry(
            name=name,
            value=str(value),
            kind=ConfigType.INT,
            source=ConfigSource.DEFAULT,
            about=about,
            is_read_only=True,
            synonyms=[(f"group.{name}", str(value), ConfigSource.STATIC_BROKER)],
        )
        for name, value, about in _group_rows(settings)
    ]


def _group_rows(settings: Settings) -> Sequence[tuple[str, int, str]]:
    interval_ms = settings.group_consumer_heartbeat_interval_ms
    session_ms = settings.group_consumer_session_timeout_ms
    return [
        ("consumer.heartbeat.interval.ms", interval_ms, "interval of heartbeats"),
        ("consumer.session.timeout.ms", session_ms, "a silent member is out after this long"),
    ]
