"""Transforms that choose a record's topic, or drop it: RegexRouter, TimestampRouter, Filter."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault
from service.connect.data.records import ConnectRecord
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import PACKAGE, TransformKind
from service.connect.transforms.regexes import compiled, replacement

TOPICS_MAX: Final = 1000
"""So many new names of topics are kept."""


def is_regex(_: str, value: Any) -> str | None:
    """Check of a key whose text must be a regular expression."""
    try:
        compiled(str(value))
    except ValueError as error:
        return str(error)
    return None


def _filter(_: Values) -> Transform:
    return lambda _: None


def _regex_router(values: Values) -> Transform:
    expression = compiled(values["regex"])
    try:
        replaced = replacement(values["replacement"], expression)
    except ValueError as error:
        raise ConfigFault({"replacement": str(error)}) from None
    known: dict[str, str] = {}

    def routed(topic: str) -> str:
        if expression.fullmatch(topic) is None:
            return topic
        # Java replaces what is found first, which may be less than the whole name.
        found = expression.search(topic)
        return topic[: found.start()] + replaced(found) + topic[found.end() :]

    def transform(record: ConnectRecord) -> ConnectRecord:
        topic = known.get(record.topic)
        if topic is None:
            if len(known) >= TOPICS_MAX:
                known.clear()
            topic = known[record.topic] = routed(record.topic)
        return record if topic == record.topic else msgspec.structs.replace(record, topic=topic)

    return transform


ROUTING_TRANSFORMS: Final[Sequence[TransformKind]] = (
    TransformKind(
        class_name=PACKAGE + "Filter",
        about="Drops every record that its predicate selects.",
        make=_filter,
    ),
    TransformKind(
        class_name=PACKAGE + "RegexRouter",
        about="Renames the topic by a regular expression that must match the whole name.",
        keys=(
            Key(
                name="regex",
                type=KeyType.STRING,
                importance=Importance.HIGH,
                about="The regular expression.",
                check=is_regex,
            ),
            Key(
                name="replacement",
                type=KeyType.STRING,
                importance=Importance.HIGH,
                about="The new name; `$1` is the first group.",
            ),
        ),
        make=_regex_router,
    ),
)
