"""From topic ids to topics: newer clients name topics by id only.

Topics are stored by name. What is known of ids is looked up again under the name, so an answer is
never that of a topic that was deleted and created again. An unknown id costs a list of all topics,
at most once in `SCAN_EVERY_S`.
"""

from collections.abc import Callable
from typing import Final

from storage.errors import UnknownTopicOrPartition
from storage.tasks import SingleFlight
from storage.topics.topics import Topic, Topics

SCAN_EVERY_S: Final = 1.0

KNOWN_MAX: Final = 200_000


class TopicIds:
    def __init__(self, topics: Topics, monotonic_s: Callable[[], float]) -> None:
        self._topics = topics
        self._monotonic_s = monotonic_s
        self._names: dict[bytes, str] = {}
        self._scanned_s: float | None = None
        self._scanning = SingleFlight[None, None]()

    def know(self, topic: Topic) -> None:
        """Remember the id of a topic that a client was told."""
        if len(self._names) >= KNOWN_MAX:
            self._names.clear()
        self._names[topic.topic_id] = topic.name

    async def topic(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id; None: there is none."""
        name = self._names.get(topic_id)
        if name is None:
            await self._scan()
            name = self._names.get(topic_id)
            if name is None:
                return None
        try:
            topic = await self._topics.get(name)
            if topic.topic_id != topic_id:
                topic = await self._topics.read(name)
        except UnknownTopicOrPartition:
            topic = None
        if topic is None or topic.topic_id != topic_id:
            self._names.pop(topic_id, None)
            return None
        return topic

    async def _scan(self) -> None:
        now_s = self._monotonic_s()
        if self._scanned_s is None or now_s - self._scanned_s >= SCAN_EVERY_S:
            await self._scanning.do(None, self._list)

    async def _list(self) -> None:
        began_s = self._monotonic_s()
        for topic in await self._topics.all():
            self.know(topic)
        self._scanned_s = began_s
