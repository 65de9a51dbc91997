"""The keys that every connector has, with Kafka's names and defaults.

`COMMON_KEYS` are those of all, `SOURCE_KEYS` and `SINK_KEYS` come besides. Prefixed keys, like
those of transforms, are not among them: `service/connect/config/validation.py` finds them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType, between, one_of
from service.connect.connectors.api import PluginKind

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
TASKS_MAX: Final = 1000

COMMON: Final = "Common"
TRANSFORMS: Final = "Transforms"
PREDICATES: Final = "Predicates"
ERRORS: Final = "Error Handling"
TOPIC_CREATION: Final = "Topic Creation"
EXACTLY_ONCE: Final = "Exactly Once Support"
OFFSETS_TOPIC: Final = "offsets.topic"

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
UNSET_CONVERTER_SETTINGS: Final[Mapping[str, str]] = {"schemas.enable": "false"}
"""Defaults of the converter that holds for keys or values if the configuration names none."""

HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

PRINCIPAL: Final = "riacho.principal"


def _is_name(_: str, value: Any) -> str | None:
    if value and str(value).isprintable():
        return None
    return "must not be empty or have control characters"


def _error_key(name: str, kind: KeyType, default: Any, display_name: str, about: str) -> Key:
    return Key(
        name=name,
        type=kind,
        default=default,
        about=about,
        group=ERRORS,
        display_name=display_name,
        check=between(-1, LONG_MAX) if kind is KeyType.LONG else None,
    )


_MAIN: Final = (
    Key(
        name="name",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The name of the connector.",
        group=COMMON,
        display_name="Connector name",
        check=_is_name,
    ),
    Key(
        name="connector.class",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="Which connector: the name of its class, ours or Java's, with its package or"
        " without.",
        group=COMMON,
        width="LONG",
        display_name="Connector class",
    ),
    Key(
        name="tasks.max",
        type=KeyType.INT,
        default=1,
        importance=Importance.HIGH,
        about="Maximum number of tasks.",
        group=COMMON,
        width="SHORT",
        display_name="Tasks max",
        check=between(1, TASKS_MAX),
    ),
    Key(
        name="tasks.max.enforce",
        type=KeyType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        about="Accepted; no connector here makes more tasks than tasks.max.",
        group=COMMON,
        width="SHORT",
        display_name="Enforce tasks max",
    ),
    Key(
        name="key.converter",
        type=KeyType.CLASS,
        default=JSON_CONVERTER,
        importance=Importance.LOW,
        about="How keys are stored in the log. If it is not set: JSON without schemas.",
        group=COMMON,
        width="SHORT",
        display_name="Key converter class",
    ),
    Key(
        name="value.converter",
        type=KeyType.CLASS,
        default=JSON_CONVERTER,
        importance=Importance.LOW,
        about="How values are stored in the log. If it is not set: JSON without schemas.",
        group=COMMON,
        width="SHORT",
        display_name="Value converter class",
    ),
    Key(
        name="header.converter",
        type=KeyType.CLASS,
        default=HEADER_CONVERTER,
        importance=Importance.LOW,
        about="How headers are stored in the log.",
        group=COMMON,
        width="SHORT",
        display_name="Header converter class",
    ),
    Key(
        name="config.action.reload",
        type=KeyType.STRING,
        default="restart",
        importance=Importance.LOW,
        about="Accepted without effect: a task resolves references whenever it starts.",
        group=COMMON,
        display_name="Reload Action",
        choices=("none", "restart"),
        check=one_of("none", "restart"),
    ),
    Key(
        name=PRINCIPAL,
        type=KeyType.STRING,
        default=None,
        importance=Importance.LOW,
        about="As whom it reads and writes, like User:etl. Only a super user may name another"
        " than itself; by default, who created it.",
        group=COMMON,
        display_name="Principal",
    ),
)

_CHANGES: Final = (
    Key(
        name="transforms",
        type=KeyType.LIST,
        default=(),
        importance=Importance.LOW,
        about="Names of transforms, in the order in which they change each record. The keys of"
        " each begin with transforms.<name>.",
        group=TRANSFORMS,
        width="LONG",
        display_name="Transforms",
    ),
    Key(
        name="predicates",
        type=KeyType.LIST,
        default=(),
        importance=Importance.LOW,
        about="Names of predicates, by which transforms choose records. The keys of each begin"
        " with predicates.<name>.",
        group=PREDICATES,
        width="LONG",
        display_name="Predicates",
    ),
)

_ERRORS: Final = (
    _error_key(
        "errors.retry.timeout",
        KeyType.LONG,
        0,
        "Retry Timeout for Errors",
        "How long a failed operation is tried again, in ms; 0: not, -1: without end.",
    ),
    _error_key(
        "errors.retry.delay.max.ms",
        KeyType.LONG,
        60_000,
        "Maximum Delay Between Retries for Errors",
        "Longest pause between two tries.",
    ),
    Key(
        name="errors.tolerance",
        type=KeyType.STRING,
        default="none",
        about="none: the task fails at a record that cannot be processed; all: it skips such"
        " records.",
        group=ERRORS,
        width="SHORT",
        display_name="Error Tolerance",
        choices=("none", "all"),
        check=one_of("none", "all"),
    ),
    _error_key(
        "errors.log.enable",
        KeyType.BOOLEAN,
        False,
        "Log Errors",
        "Whether each failed operation is logged, also if it is tolerated.",
    ),
    _error_key(
        "errors.log.include.messages",
        KeyType.BOOLEAN,
        False,
        "Log Error Details",
        "Whether the log also says which record it was: topic, partition, offset, timestamp.",
    ),
)

DLQ_TOPIC: Final = "errors.deadletterqueue.topic.name"

_DEAD_LETTERS: Final = (
    _error_key(
        DLQ_TOPIC,
        KeyType.STRING,
        "",
        "Dead Letter Queue Topic Name",
        "The topic that gets records that cannot be processed; needs errors.tolerance=all.",
    ),
    Key(
        name="errors.deadletterqueue.topic.replication.factor",
        type=KeyType.INT,
        default=3,
        about="Zones that hold this topic if it has to be created; all of them, if there are"
        " fewer.",
        group=ERRORS,
        display_name="Dead Letter Queue Topic Replication Factor",
        check=between(-1, 32_767),
    ),
    _error_key(
        "errors.deadletterqueue.context.headers.enable",
        KeyType.BOOLEAN,
        False,
        "Enable Error Context Headers",
        "Whether dead letters get headers that say where they come from and what is wrong.",
    ),
)

COMMON_KEYS: Final[Sequence[Key]] = (*_MAIN, *_CHANGES, *_ERRORS)
"""Of sources and sinks."""

SOURCE_KEYS: Final[Sequence[Key]] = (
    *_DEAD_LETTERS,
    Key(
        name="topic.creation.groups",
        type=KeyType.LIST,
        default=(),
        importance=Importance.LOW,
        about="Names of groups of topics, for which topic.creation.<name>.include says how their"
        " topics are created.",
        group=TOPIC_CREATION,
        width="LONG",
        display_name="Topic Creation Groups",
    ),
    Key(
        name="exactly.once.support",
        type=KeyType.STRING,
        default="requested",
        about="Accepted: every source writes each record once, with its position.",
        group=EXACTLY_ONCE,
        width="SHORT",
        display_name="Exactly once support",
        choices=("requested", "required"),
        check=one_of("requested", "required"),
    ),
    Key(
        name="transaction.boundary",
        type=KeyType.STRING,
        default="poll",
        about="Accepted: a commit has whole polls, and as many as came while the last one was under"
        " way.",
        group=EXACTLY_ONCE,
        width="SHORT",
        display_name="Transaction Boundary",
        choices=("poll", "connector", "interval"),
        check=one_of("poll", "connector", "interval"),
    ),
    Key(
        name="transaction.boundary.interval.ms",
        type=KeyType.LONG,
        default=None,
        importance=Importance.LOW,
        about="Accepted without effect.",
        group=EXACTLY_ONCE,
        width="SHORT",
        display_name="Transaction boundary interval",
        check=between(0, LONG_MAX),
    ),
    Key(
        name="offsets.storage.topic",
        type=KeyType.STRING,
        default=None,
        importance=Importance.LOW,
        about="Accepted without effect: positions are kept in the metadata table.",
        group=OFFSETS_TOPIC,
        width="LONG",
        display_name="Offsets topic",
    ),
)

SINK_KEYS: Final[Sequence[Key]] = (
    Key(
        name="topics",
        type=KeyType.LIST,
        default=(),
        importance=Importance.HIGH,
        about="The topics to read, with commas.",
        group=COMMON,
        width="LONG",
        display_name="Topics",
    ),
    Key(
        name="topics.regex",
        type=KeyType.STRING,
        default="",
        importance=Importance.HIGH,
        about="Instead of topics: a pattern (RE2) of the names of topics to read, also of those"
        " that come later.",
        group=COMMON,
        width="LONG",
        display_name="Topics regex",
    ),
    *_DEAD_LETTERS,
    Key(
        name="consumer.override.auto.offset.reset",
        type=KeyType.STRING,
        default="earliest",
        importance=Importance.LOW,
        about="Where a partition without a committed offset is begun.",
        group=COMMON,
        display_name="Offset Reset",
        choices=("earliest", "latest"),
        check=one_of("earliest", "latest"),
    ),
    Key(
        name="consumer.override.max.poll.records",
        type=KeyType.INT,
        default=None,
        importance=Importance.LOW,
        about="Maximum number of records that the connector is given at once. Unset: 500, as in"
        " Kafka; of JDBC and object sinks 5000.",
        group=COMMON,
        display_name="Records per Batch",
        check=between(1, 100_000),
    ),
)


def frame_keys(kind: PluginKind) -> Sequence[Key]:
    """Return the keys of every connector of a kind."""
    return (*COMMON_KEYS, *(SOURCE_KEYS if kind is PluginKind.SOURCE else SINK_KEYS))


OVERRIDES: Final = ("consumer.override.", "producer.override.", "admin.override.")
"""What settings of Kafka's clients begin with. Those without a `Key` above have no effect."""

REFUSED_OVERRIDES: Final[Mapping[str, str]] = {
    "consumer.override.group.id": "cannot be chosen: the group of a sink is connect-<name>",
}
"""Those that would mean something that is not so here."""


ACCEPTED: Final = ("confluent.license", "connector.plugin.version")
ACCEPTED_BELOW: Final = ("confluent.topic.", *OVERRIDES)
"""Keys that configurations from elsewhere have, and that have no effect here."""
