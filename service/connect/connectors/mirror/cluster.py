"""The source cluster, asked with librdkafka. Everything here blocks: call it in a thread."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from service.connect.config.keys import Config
from service.connect.connectors.api import TopicPartition
from service.connect.connectors.mirror.security import client_settings, consumer_settings
from service.connect.connectors.mirror.selection import Chosen
from service.connect.data.errors import RetriableFault, TaskFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError, Message

T = TypeVar("T")

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 30.0
FETCHED_KBYTES_MAX: Final = 32 * 1024
"""Of records that are here and not polled yet."""

POLL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of the records of one poll, about."""

CONSUME_AT_ONCE: Final = 500
GROUPS_MAX: Final = 10_000
GROUPS_AT_ONCE: Final = 50
"""Groups of the source that are asked about, in all and at the same time."""
START: Final = -2
"""The first offset that the source has still, in librdkafka's words."""


class SourceCluster:
    def __init__(self, config: Config, files: Path | None, name: str) -> None:
        """Connect to nothing yet. Raises `TaskFault` for settings that cannot be."""
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka.admin import AdminClient

        self.is_reachable = True
        self.lost: list[TopicPartition] = []
        """Partitions that do not have the offset that was asked for; they wait for `seek`."""
        self._trouble: KafkaError | None = None
        self._fault: RetriableFault | TaskFault | None = None
        try:
            settings = {"client.id": f"riacho-{name}", **client_settings(config, files)}
            settings |= {"error_cb": self._note, "logger": log}
            self._admin: AdminClient = AdminClient(dict(settings))
            self._consumer: Consumer = Consumer(
                {
                    **settings,
                    "group.id": f"riacho-mirror-{name}",  # Required, and never joined.
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": FETCHED_KBYTES_MAX,
                    **consumer_settings(config),
                }
            )
        except (KafkaException, ValueError) as error:
            raise TaskFault(f"the source cluster cannot be used: {error}") from None

    def partitions(self, is_wanted: Chosen) -> Mapping[str, int]:
        """Return the topics that are wanted, and how many partitions they have."""
        with self._reporting("topics cannot be listed"):
            topics = self._admin.list_topics(timeout=ANSWER_S_MAX).topics
        return {
            name: len(topic.partitions)
            for name, topic in topics.items()
            if topic.error is None and is_wanted(name)
        }

    def configs(self, topics: Sequence[str], is_wanted: Chosen) -> Mapping[str, Mapping[str, str]]:
        """Return what was set for each topic; what is default is left out."""
        # Both are documented there, and its types forget them.
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            ConfigResource,
            ConfigSource,
        )

        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        with self._reporting("configs of topics cannot be read"):
            answers = self._admin.describe_configs(asked, request_timeout=ANSWER_S_MAX)
            return {
                resource.name: {
                    name: entry.value
                    for name, entry in _result(answer).items()
                    if entry.source == own and entry.value is not None and is_wanted(name)
                }
                for resource, answer in answers.items()
            }

    def group_offsets(self, is_wanted: Chosen) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the committed offsets of the groups that are wanted."""
        from confluent_kafka import ConsumerGroupTopicPartitions as Group

        found: dict[str, Mapping[TopicPartition, int]] = {}
        with self._reporting("groups cannot be read"):
            listed = _result(self._admin.list_consumer_groups(request_timeout=ANSWER_S_MAX))
            names = [each.group_id for each in listed.valid if is_wanted(each.group_id)]
            for start in range(0, min(len(names), GROUPS_MAX), GROUPS_AT_ONCE):
                asked = {
                    name: self._admin.list_consumer_group_offsets(
                        [Group(name)], request_timeout=ANSWER_S_MAX
                    )[name]
                    for name in names[start : start + GROUPS_AT_ONCE]
                }
                for name, answer in asked.items():
                    found[name] = {
                        TopicPartition(each.topic, each.partition): each.offset
                        for each in _result(answer).topic_partitions
                        if each.offset >= 0 and each.error is None
                    }
        return found

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from now on, from an offset; None: from the beginning."""
        from confluent_kafka import TopicPartition as Place

        with self._reporting("partitions cannot be read"):
            self._consumer.incremental_assign(
                [
                    Place(at.topic, at.partition, START if offset is None else offset)
                    for at, offset in starts.items()
                ]
            )

    def poll(self, wait_s: float, records_max: int) -> "list[Message]":
        """Return the next records; wait for the first, and for no other.

        What goes wrong behind some records is raised by the next call: they would be lost.
        """
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        found: list[Message] = []
        try:
            self._gather(found, wait_s, records_max)
        except (RetriableFault, TaskFault) as fault:
            if not found:
                raise
            self._fault = fault
        trouble, self._trouble = self._trouble, None
        if found:
            self.is_reachable = True
        elif trouble is not None:
            # librdkafka connects again by itself, but not with another password.
            self.is_reachable = False
            if trouble.code() in _hopeless() or trouble.fatal():
                self._raise(trouble, "the source cluster refuses us")
        return found

    def _gather(self, found: "list[Message]", wait_s: float, records_max: int) -> None:
        with self._reporting("records cannot be read"):
            first = self._consumer.poll(wait_s)
            waiting = [] if first is None else [first]
            size_bytes = 0
            while waiting:
                refused = [each for each in waiting if each.error() is not None]
                for message in waiting:
                    if message.error() is not None:
                        continue
                    found.append(message)
                    size_bytes += len(message.value() or b"") + len(message.key() or b"")
                for message in refused:
                    self._refuse(message)
                room = min(records_max - len(found), CONSUME_AT_ONCE)
                if room <= 0 or size_bytes >= POLL_BYTES_MAX:
                    break
                waiting = self._consumer.consume(room, 0)

    def span(self, at: TopicPartition) -> tuple[int, int]:
        """Return the first offset that the source has still, and the next that it gives."""
        from confluent_kafka import TopicPartition as Place

        with self._reporting("the ends of a partition cannot be read"):
            place = Place(at.topic, at.partition)
            found = self._consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)
        if found is None:
            raise RetriableFault(f"no answer within {ANSWER_S_MAX:g} s")
        return found

    def seek(self, at: TopicPartition, offset: int) -> None:
        from confluent_kafka import TopicPartition as Place

        with self._reporting("partitions cannot be read"):
            self._consumer.incremental_unassign([Place(at.topic, at.partition)])
            self._consumer.incremental_assign([Place(at.topic, at.partition, offset)])

    def close(self) -> None:
        with suppress(RuntimeError):
            self._consumer.close()

    def _note(self, error: "KafkaError") -> None:
        self._trouble = error

    def _refuse(self, message: "Message") -> None:
        from confluent_kafka import KafkaError

        error, topic, partition = message.error(), message.topic(), message.partition()
        assert error is not None, message
        if error.code() == KafkaError._AUTO_OFFSET_RESET and topic and partition is not None:
            self.lost.append(TopicPartition(topic, partition))
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
            log.warning("a mirrored partition is gone from the source: %s", error.str())
        else:
            self._raise(error, f"{topic} cannot be read")

    def _raise(self, error: "KafkaError", what: str) -> None:
        text = f"{what}: {error.str()} ({error.name()})"
        is_hopeless = error.code() in _hopeless() or error.fatal()
        raise TaskFault(text) if is_hopeless else RetriableFault(text)

    @contextmanager
    def _reporting(self, what: str) -> "Iterator[None]":
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            self._raise(error.args[0], what)
        except TimeoutError:
            raise RetriableFault(f"{what}: no answer within {ANSWER_S_MAX:g} s") from None


def _result(future: "Future[T]") -> Any:
    return future.result(ANSWER_S_MAX)


def _hopeless() -> set[int]:
    """Return the codes of errors that only a person can mend."""
    from confluent_kafka import KafkaError

    return {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
