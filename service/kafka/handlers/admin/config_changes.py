"""Changes of topic settings as Kafka's requests say them: all at once, or one by one. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeAlias

from service.kafka.handlers.admin.answers import KafkaRefusal, repeated
from service.kafka.handlers.admin.config_entries import LISTS
from service.kafka.protocol.error_codes import ErrorCode
from storage.topics.config import SETTINGS, TopicConfig
from storage.topics.topics import ConfigChange

Change: TypeAlias = Callable[[TopicConfig], ConfigChange]
"""From the settings of a topic as they are to what changes in them."""


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def replacing(given: Sequence[tuple[str, str | None]]) -> Change:
    """Return the change to these settings, and defaults for all others.

    What was fixed when the topic was created stays, unless it is given.
    """
    _check_names(name for name, _ in given)
    new = {name: _with_value(name, value) for name, value in given}

    def change(config: TopicConfig) -> ConfigChange:
        left_out: Mapping[str, None] = {
            name: None
            for name in config.given
            if name not in new and name in SETTINGS and not SETTINGS[name].fixed
        }
        return {**left_out, **new}

    return change


def incremental(given: Sequence[tuple[str, int, str | None]]) -> Change:
    """Return the change that these operations make, each of one setting."""
    _check_names(name for name, _, _ in given)
    for name, operation, value in given:
        if operation not in set(ConfigOperation):
            raise KafkaRefusal(ErrorCode.INVALID_REQUEST, f"there is no operation {operation}")
        if operation == ConfigOperation.DELETE:
            continue
        _with_value(name, value)
        if operation != ConfigOperation.SET and name not in LISTS:
            raise KafkaRefusal(
                ErrorCode.INVALID_CONFIG,
                f"config: {name} is not a list, so nothing can be appended or subtracted",
            )

    def change(config: TopicConfig) -> ConfigChange:
        return {name: _changed(config, name, operation, value) for name, operation, value in given}

    return change


def _changed(config: TopicConfig, name: str, operation: int, value: str | None) -> str | None:
    if operation == ConfigOperation.DELETE:
        return None
    assert value is not None, name
    if operation == ConfigOperation.SET:
        return value
    old, items = _items(config[name]), _items(value)
    if operation == ConfigOperation.APPEND:
        return ",".join([*old, *(item for item in items if item not in old)])
    return ",".join(item for item in old if item not in items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_names(names: Iterable[str]) -> None:
    twice = repeated(names)
    if twice:
        raise KafkaRefusal(
            ErrorCode.INVALID_REQUEST, f"the request names {', '.join(sorted(twice))} twice"
        )


def _with_value(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, f"config: {name} has no value")
    return value
