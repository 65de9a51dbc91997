"""Under which subject a schema is registered: Confluent's strategies."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from service.connect.data.errors import DataFault

_PACKAGE: Final = "io.confluent.kafka.serializers.subject."

Strategy = Callable[[str, bool, str | None], str]
"""Takes the topic, whether it is for keys, and the record's name, if the schema has one."""


def _of_topic(topic: str, is_key: bool, _: str | None) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def _of_record(_: str, __: bool, name: str | None) -> str:
    if name is None:
        raise DataFault("the schema has no name, which its subject would have")
    return name


def _of_topic_and_record(topic: str, is_key: bool, name: str | None) -> str:
    return f"{topic}-{_of_record(topic, is_key, name)}"


_STRATEGIES: Final[Mapping[str, Strategy]] = {
    "TopicNameStrategy": _of_topic,
    "RecordNameStrategy": _of_record,
    "TopicRecordNameStrategy": _of_topic_and_record,
}
TOPIC_NAME: Final = _PACKAGE + "TopicNameStrategy"
STRATEGIES: Final = tuple(_PACKAGE + name for name in _STRATEGIES)


def strategy_of(class_name: str) -> Strategy:
    return _STRATEGIES[class_name.rpartition(".")[2]]


def is_strategy(_: str, value: Any) -> str | None:
    """Check of a key that names a strategy, as Java's class or without its package."""
    package, _, name = str(value).rpartition(".")
    if name in _STRATEGIES and package in ("", _PACKAGE[:-1]):
        return None
    return f"must be one of {', '.join(STRATEGIES)}"
