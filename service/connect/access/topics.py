"""Topics of connectors: found, or created as the configuration and the settings say.

    topic.creation.default.partitions, .replication.factor, .<setting of a topic>
    topic.creation.groups, topic.creation.<group>.include, .exclude, .partitions, …

Without any of these keys a topic is created as for a Kafka client that asks for it:
`kafka_auto_create`, `kafka_num_partitions`, `kafka_replication_factor`. Patterns are judged by RE2.
"""

from collections.abc import Mapping
from typing import Final

from service.connect.config.keys import Config
from service.connect.data.errors import TaskFault
from service.log.gateway import Gateway
from service.security.administering import create_topic
from service.security.caller import Caller
from storage.errors import TopicExists, UnknownTopicOrPartition
from storage.topics.topics import Topic

PREFIX: Final = "topic.creation."
DEFAULT: Final = "default"
_OWN: Final = {"include", "exclude", "partitions", "replication.factor"}


async def topic_of(
    gateway: Gateway, caller: Caller, name: str, outer: str, config: Config
) -> Topic:
    """Return the topic `name`, which the configuration calls `outer`; create it if it may be.

    Raises what creating raises, and `TaskFault` if it does not exist and is not to be created.
    """
    try:
        return await gateway.topics.get(name)
    except UnknownTopicOrPartition:
        wanted = settings_of(config, outer)
    settings = gateway.settings
    if wanted is None and not settings.kafka_auto_create:
        raise TaskFault(
            f"topic {outer!r} does not exist, and RIACHO_KAFKA_AUTO_CREATE is off: create it, or"
            " say how with topic.creation.default.partitions"
        )
    wanted = wanted or {}
    try:
        return await create_topic(
            gateway,
            caller,
            name,
            partitions=_number(wanted, "partitions", settings.kafka_num_partitions),
            replication_factor=min(
                _number(wanted, "replication.factor", settings.kafka_replication_factor),
                len(gateway.zones.names),
            ),
            config={key: text for key, text in wanted.items() if key not in _OWN},
            caps_in_sync_min=True,
        )
    except TopicExists:
        return await gateway.topics.read(name)


def settings_of(config: Config, topic: str) -> Mapping[str, str] | None:
    """Return what the configuration says of topics like this one, without the prefix.

    None: it has no keys of the creation of topics.
    """
    if not any(key.startswith(PREFIX) for key in config):
        return None
    default = _below(config, DEFAULT)
    for group in config.get(f"{PREFIX}groups", "").split(","):
        own = _below(config, group.strip())
        if group.strip() and _matches(own, topic):
            return {**default, **own}
    return default


def _below(config: Config, group: str) -> dict[str, str]:
    prefix = f"{PREFIX}{group}."
    return {key[len(prefix) :]: text for key, text in config.items() if key.startswith(prefix)}


def _matches(group: Mapping[str, str], topic: str) -> bool:
    return _any(group.get("include", ""), topic) and not _any(group.get("exclude", ""), topic)


def _any(patterns: str, topic: str) -> bool:
    # Imported here: few connectors have groups.
    import re2

    return any(
        re2.fullmatch(pattern.strip(), topic) is not None
        for pattern in patterns.split(",")
        if pattern.strip()
    )


def _number(wanted: Mapping[str, str], key: str, default: int) -> int:
    """Return a number of the configuration; -1 and nothing mean the default."""
    text = wanted.get(key, "-1")
    try:
        number = int(text)
    except ValueError:
        raise TaskFault(f"{PREFIX}*.{key}: {text!r} is not a whole number") from None
    return default if number == -1 else number
