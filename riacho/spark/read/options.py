"""Options of a read: which partitions, from where to where, and how to split it into tasks.

All options have the names and meanings of Spark's Kafka source:

    subscribe, subscribePattern, assign       one of them
    startingTimestamp, startingOffsetsByTimestamp, startingOffsets    the first that is given
    endingTimestamp, endingOffsetsByTimestamp, endingOffsets          the same, batches only
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from riacho.http.identity import NOTHING_GIVEN, Credentials
from riacho.records import TopicPartition
from riacho.spark.options import Options, malformed
from storage.errors import InvalidConfig

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets in JSON that mean an end of the log, as with Kafka."""

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_BOTH: Final = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "decode",
    "decode.mode",
    "decode.schema",
    "decode.subject",
)
_BATCH: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_OFFSETS: Final = '{"orders": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest'
_TIMES: Final = '{"orders": {"0": 1700000000000}}, in milliseconds since 1970'
_ASSIGNED: Final = '{"orders": [0, 1]}'

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d|)")
_UNIT_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
                   "d": 86_400_000}  # fmt: skip
_TRIGGER_DELAY_MS: Final = 15 * 60_000

End = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Which partitions are read: of `names`, of topics that match `pattern`, or `assigned`."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] | None = None

    def takes(self, partition: TopicPartition) -> bool:
        return self.assigned is None or partition in self.assigned

    def matching(self, names: list[str]) -> list[str]:
        """Return the names that match the pattern."""
        assert self.pattern is not None
        return [name for name in names if re.fullmatch(self.pattern, name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where to begin or to end: by offset, by time, or at an end of the log. One is set."""

    end: End | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    at_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """By which schemas values are decoded: all versions of a subject, or one schema."""

    subject: str
    schema_id: int | None
    fails_fast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    url: str
    subscription: TopicSelection
    start: Boundary
    end: Boundary
    late_is_latest: bool
    """If a partition has no record at or after the start time: begin at its end, or raise."""
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    credentials: Credentials = NOTHING_GIVEN
    max_trigger_delay_ms: int = _TRIGGER_DELAY_MS
    decode: DecodeOptions | None = None


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch query, or raise `InvalidConfig`."""
    _refuse(given, _STREAM, "streaming queries")
    options = Options(given, (*_BOTH, *_BATCH))
    return ReadOptions(
        **_shared(options),
        start=_place(options, "starting", "earliest", refused="latest"),
        end=_place(options, "ending", "latest", refused="earliest"),
    )


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming query, or raise `InvalidConfig`."""
    _refuse(given, _BATCH, "batch queries")
    options = Options(given, (*_BOTH, *_STREAM))
    most = options.integer("maxOffsetsPerTrigger")
    least = options.integer("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidConfig("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
    return ReadOptions(
        **_shared(options),
        start=_place(options, "starting", "latest"),
        end=Boundary(end="latest"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay", _TRIGGER_DELAY_MS),
    )


def schema_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options that say of what a table or a stream is, not where it begins and ends."""
    options = Options(given, (*_BOTH, *_BATCH, *_STREAM))
    return ReadOptions(
        **_shared(options), start=Boundary(end="earliest"), end=Boundary(end="latest")
    )


def _refuse(given: Mapping[str, str], names: tuple[str, ...], where: str) -> None:
    lower = {name.lower() for name in given}
    for name in names:
        if name.lower() in lower:
            raise InvalidConfig(f"{name} is for {where} only; remove it")


def _shared(options: Options) -> dict[str, Any]:
    options.boolean("includeHeaders")
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    subscription = _subscription(options)
    return {
        "url": options.url(),
        "credentials": options.credentials(),
        "subscription": subscription,
        "decode": _value_schemas(options, subscription),
        "late_is_latest": strategy == "latest",
        "min_partitions": options.integer("minPartitions"),
        "max_records_per_partition": options.integer("maxRecordsPerPartition"),
        "fail_on_data_loss": options.boolean("failOnDataLoss", default=True),
    }


def _value_schemas(options: Options, subscription: TopicSelection) -> DecodeOptions | None:
    schema_id = options.integer("decode.schema")
    given = options.at_most_one(("decode.schema", "decode.subject"))
    mode = options.choice("decode.mode", ("permissive", "failfast"), "permissive")
    if not options.boolean("decode"):
        if given is not None:
            raise InvalidConfig(f"{given} says nothing without decode=true")
        return None
    subject = options.text("decode.subject") or ""
    if given is None:
        if len(subscription.names) != 1:
            raise InvalidConfig("decode=true reads one topic, or needs decode.subject")
        subject = f"{subscription.names[0]}-value"
    return DecodeOptions(subject=subject, schema_id=schema_id, fails_fast=mode == "failfast")


def _subscription(options: Options) -> TopicSelection:
    given = options.at_most_one(_SUBSCRIPTIONS)
    if given is None:
        raise InvalidConfig(f"which topics? Set one of {', '.join(_SUBSCRIPTIONS)}")
    if given == "assign":
        return _assigned(options)
    text = (options.text(given) or "").strip()
    if given == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidConfig(f"subscribePattern is no regular expression: {error}") from error
        return TopicSelection(pattern=text)
    names = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
    if not names:
        raise InvalidConfig("subscribe names no topic")
    return TopicSelection(names=names)


def _assigned(options: Options) -> TopicSelection:
    found = options.json("assign", _ASSIGNED)
    try:
        partitions = frozenset(
            TopicPartition(str(topic), _index(number))
            for topic, numbers in found.items()
            for number in numbers
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise malformed("assign", _ASSIGNED) from error
    if not partitions:
        raise InvalidConfig("assign names no partition")
    return TopicSelection(names=tuple(sorted({p.topic for p in partitions})), assigned=partitions)


def _place(options: Options, prefix: str, default: End, refused: End | None = None) -> Boundary:
    at_ms = options.integer(f"{prefix}Timestamp", at_least=0)
    if at_ms is not None:
        return Boundary(at_ms=at_ms)
    name = f"{prefix}OffsetsByTimestamp"
    if name in options:
        return Boundary(times_ms=_by_partition(options, name, _TIMES, at_least=0))
    return _offsets(options, f"{prefix}Offsets", default, refused)


def _offsets(options: Options, name: str, default: End, refused: End | None) -> Boundary:
    text = (options.text(name) or default).strip().lower()
    if text == refused:
        raise InvalidConfig(f"{name} cannot be {refused} in a batch query: nothing would be read")
    if text == "earliest":
        return Boundary(end="earliest")
    if text == "latest":
        return Boundary(end="latest")
    offsets = _by_partition(options, name, f"earliest, latest or {_OFFSETS}", at_least=EARLIEST)
    forbidden = {"latest": LATEST, "earliest": EARLIEST}.get(refused or "")
    if forbidden in offsets.values():
        raise InvalidConfig(f"{name} cannot have {forbidden} ({refused}) in a batch query")
    return Boundary(offsets=offsets)


def _by_partition(
    options: Options, name: str, example: str, at_least: int
) -> dict[TopicPartition, int]:
    found = options.json(name, example)
    try:
        numbers = {
            TopicPartition(str(topic), _index(partition)): _index(number, at_least)
            for topic, partitions in found.items()
            for partition, number in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise malformed(name, example) from error
    if not numbers:
        raise InvalidConfig(f"{name} names no partition")
    return numbers


def _index(number: object, at_least: int = 0) -> int:
    if isinstance(number, bool | float):
        raise TypeError(number)
    value = int(str(number))
    if value < at_least:
        raise ValueError(value)
    return value


def _duration_ms(options: Options, name: str, default_ms: int) -> int:
    text = options.text(name)
    if text is None:
        return default_ms
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidConfig(f"{name} is {text!r}; it looks like 500ms, 30s or 15m")
    return int(found[1]) * _UNIT_MS[found[2]]
