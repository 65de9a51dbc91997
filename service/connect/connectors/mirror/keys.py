"""The keys of the mirror, with MirrorMaker's names."""

from collections.abc import Sequence
from typing import Any, Final

from service.connect.config.keys import REQUIRED, Config, Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.connectors.api import Environment
from service.connect.connectors.mirror import security
from service.connect.connectors.mirror.selection import (
    DEFAULT_POLICY,
    IDENTITY,
    Naming,
    chosen,
    share_of,
)

SHARE: Final = "mirror.share"
"""Which partitions a task copies; set when tasks are planned."""

BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
_LOGIN: Final = f"{security.PREFIX}sasl.jaas.config"
SECONDS_MAX: Final = 86_400

_EVENTS: Final = "there is no cluster of brokers here that would need it"
_CHECKPOINTS: Final = "group offsets are committed themselves: see sync.group.offsets.enabled"
_ACLS: Final = "ACLs are not copied: principals have other names here"
IGNORED: Final = {
    "replication.factor": "zones decide how many copies there are",
    "target.cluster.bootstrap.servers": "the target is this log",
    "topic.filter.class": "topics and topics.exclude choose",
    "group.filter.class": "groups and groups.exclude choose",
    "config.property.filter.class": "config.properties.exclude chooses",
    "use.defaults.from": "defaults of topics are those of this log",
    "sync.topic.configs.interval.seconds": "configs are copied when a topic is created",
    "sync.topic.acls.enabled": _ACLS,
    "sync.topic.acls.interval.seconds": _ACLS,
    "emit.checkpoints.enabled": _CHECKPOINTS,
    "emit.checkpoints.interval.seconds": _CHECKPOINTS,
    "checkpoints.topic.replication.factor": _CHECKPOINTS,
    "refresh.groups.enabled": _CHECKPOINTS,
    "refresh.groups.interval.seconds": _CHECKPOINTS,
    "emit.offset-syncs.enabled": "syncs of offsets are part of the positions",
    "offset.lag.max": "where offsets are here is noted every 2 s",
    "offset-syncs.topic.location": "syncs of offsets are part of the positions",
    "offset-syncs.topic.replication.factor": "syncs of offsets are part of the positions",
    "emit.heartbeats.enabled": _EVENTS,
    "emit.heartbeats.interval.seconds": _EVENTS,
    "heartbeats.topic.replication.factor": _EVENTS,
    "heartbeats.replication.enabled": _EVENTS,
    "add.source.alias.to.metrics": "metrics name the connector",
    "admin.timeout.ms": "calls have 30 s",
}


def _name_of_policy(_: str, value: Any) -> str | None:
    known = (DEFAULT_POLICY, IDENTITY)
    if str(value).rpartition(".")[2] in known:
        return None
    return f"must be one of {', '.join(known)}"


def _patterns(_: str, value: Any) -> str | None:
    try:
        chosen(value, ())
    except ValueError as error:
        return str(error)
    return None


def _share(_: str, value: Any) -> str | None:
    try:
        share_of(str(value))
    except ValueError:
        return "is set when tasks are planned"
    return None


def _alias(_: str, value: Any) -> str | None:
    text = str(value)
    if text and text.isascii() and all(char.isalnum() or char in "._-" for char in text):
        return None
    return "must be letters, digits, dots, dashes or underscores"


def _key(name: str, kind: KeyType, default: Any, about: str, group: str, **more: Any) -> Key:
    return Key(name=name, type=kind, default=default, about=about, group=group, **more)


_TOPICS: Final = (
    _key(
        f"{security.PREFIX}bootstrap.servers",
        KeyType.STRING,
        REQUIRED,
        "Brokers of the source cluster, host:port with commas between.",
        "Source cluster",
        importance=Importance.HIGH,
    ),
    _key(
        f"{security.PREFIX}alias",
        KeyType.STRING,
        "source",
        "What the source cluster is called: topics are named after it.",
        "Source cluster",
        importance=Importance.HIGH,
        check=_alias,
    ),
    _key(
        "target.cluster.alias",
        KeyType.STRING,
        "",
        "What this log is called there; topics of that name are not copied back.",
        "Topics",
        importance=Importance.LOW,
    ),
    _key(
        "topics",
        KeyType.LIST,
        (".*",),
        "Names and patterns of topics to copy.",
        "Topics",
        importance=Importance.HIGH,
        check=_patterns,
    ),
    _key(
        "topics.exclude",
        KeyType.LIST,
        (r".*[\-\.]internal", r".*\.replica", "__.*"),
        "Names and patterns of topics that are not copied.",
        "Topics",
        check=_patterns,
    ),
    _key(
        "replication.policy.class",
        KeyType.CLASS,
        DEFAULT_POLICY,
        "DefaultReplicationPolicy names topics ALIAS.TOPIC, IdentityReplicationPolicy as they are.",
        "Topics",
        importance=Importance.HIGH,
        check=_name_of_policy,
    ),
    _key(
        "replication.policy.separator",
        KeyType.STRING,
        ".",
        "Between the alias and the topic.",
        "Topics",
        importance=Importance.LOW,
        check=_alias,
    ),
    _key(
        "refresh.topics.enabled",
        KeyType.BOOLEAN,
        True,
        "Whether new topics and partitions are looked for.",
        "Topics",
    ),
    _key(
        "refresh.topics.interval.seconds",
        KeyType.INT,
        600,
        "How often.",
        "Topics",
        check=between(1, SECONDS_MAX),
    ),
    _key(
        "sync.topic.configs.enabled",
        KeyType.BOOLEAN,
        True,
        "Whether topics are created with the configs that they have in the source.",
        "Topics",
    ),
    _key(
        "config.properties.exclude",
        KeyType.LIST,
        (
            r"follower\.replication\.throttled\.replicas",
            r"leader\.replication\.throttled\.replicas",
            r"message\.timestamp\.difference\.max\.ms",
            r"message\.timestamp\.type",
            r"unclean\.leader\.election\.enable",
            r"min\.insync\.replicas",
        ),
        "Names and patterns of configs that are not copied.",
        "Topics",
        check=_patterns,
    ),
)
_GROUPS: Final = (
    _key(
        "sync.group.offsets.enabled",
        KeyType.BOOLEAN,
        False,
        "Whether offsets of groups are committed here, for groups without members here.",
        "Groups",
        importance=Importance.HIGH,
    ),
    _key(
        "sync.group.offsets.interval.seconds",
        KeyType.INT,
        60,
        "How often.",
        "Groups",
        check=between(1, SECONDS_MAX),
    ),
    _key(
        "groups",
        KeyType.LIST,
        (".*",),
        "Names and patterns of groups.",
        "Groups",
        check=_patterns,
    ),
    _key(
        "groups.exclude",
        KeyType.LIST,
        ("console-consumer-.*", "connect-.*", "__.*"),
        "Names and patterns of groups that are not copied.",
        "Groups",
        check=_patterns,
    ),
)
_REST: Final = (
    _key(
        "consumer.poll.timeout.ms",
        KeyType.LONG,
        1000,
        "How long a poll waits for records, at most.",
        "Reading",
        importance=Importance.LOW,
        check=between(1, 60_000),
    ),
    _key(
        SHARE, KeyType.STRING, "0/1", "Ours, set when tasks are planned.", "Reading", check=_share
    ),
)
KEYS: Final[Sequence[Key]] = (*_TOPICS, *_GROUPS, *security.KEYS, *_REST)


def check(config: Config, environment: Environment) -> dict[str, str]:
    """Return problems that a single key's check cannot see."""
    found = {
        name: "the mirror keeps bytes as they are: use ByteArrayConverter, or leave it out"
        for name in CONVERTERS
        if config.get(name, BYTES).rpartition(".")[2] != "ByteArrayConverter"
    }
    try:
        security.client_settings(_with_a_login(config), environment.files)
    except ValueError as error:
        found[f"{security.PREFIX}security.protocol"] = str(error)
    return found


def _with_a_login(config: Config) -> Config:
    """Return the configuration with any login where it has a reference to one."""
    if not config.get(_LOGIN, "").strip().startswith("${"):
        return config
    options = ("username", "password", "clientId", "clientSecret")
    return {**config, _LOGIN: " ".join(f'{name}="x"' for name in options)}


def naming_of(values: Values) -> Naming:
    return Naming(
        source=values[f"{security.PREFIX}alias"],
        separator=values["replication.policy.separator"],
        is_identity=values["replication.policy.class"].rpartition(".")[2] == IDENTITY,
        target=values["target.cluster.alias"],
    )
