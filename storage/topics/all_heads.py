"""Reads the heads of all lanes, and raises an error if one of them is missing.

What no head refers to is garbage, so a process that removes garbage must not miss a head: the
records of that lane would be lost. Heads are written before their topic and removed after it. So
if a head is not found and its topic still exists afterwards, the head is lost.

Where the table can be scanned (`storage/stores/metadata.py:Scannable`), every item is read, as of
one moment, including items whose key is damaged and cannot be looked up. Heads without a topic
count as well, because the damage may be in the topic's key, unless the topic is known to be gone.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from storage import keys
from storage.errors import Corrupt, HeadMissing, MetadataDamaged
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import MetadataStore, Scannable, Scanned, Versioned, pages
from storage.topics import deleted as gone_topics
from storage.topics import items as topic_items
from storage.topics.items import Topic

HEADS_AT_ONCE: Final = 100

COLLECTIONS: Final = frozenset(
    {
        "acl",
        "atomic",
        "batch",
        "connect-offset",
        "connect-task",
        "connector",
        "counter",
        "data-key",
        "doctor",
        "gateway",
        "gone",
        "group",
        "head",
        "idempotency",
        "key",
        "lease",
        "member",
        "offset",
        "producer",
        "quota",
        "quota-use",
        "redrive",
        "redriven",
        "schema",
        "schema-context",
        "schema-digest",
        "schema-guid",
        "schema-ref",
        "schema-text",
        "schema-use",
        "security",
        "subject",
        "topic",
        "txn",
        "user",
        "verification",
        "watch",
        "zone",
    }
)
"""The first parts of all keys (`storage/keys.py`)."""


async def every_head(metadata: MetadataStore) -> AsyncIterator[Head]:
    """Yield the head of every lane of every topic.

    Raises `HeadMissing` or another `Corrupt` if one of them is missing or may be.
    """
    found = _scanned(metadata) if isinstance(metadata, Scannable) else _looked_up(metadata)
    async for head in found:
        yield head


@dataclass(slots=True)
class _Seen:
    """What a scan has found so far."""

    topics: list[Topic] = field(default_factory=list)
    gone: set[bytes] = field(default_factory=set)
    """Topics that are being made or deleted."""
    heads: set[str] = field(default_factory=set)

    def add(self, key: str, item: Versioned) -> Head | None:
        """Record an item; if it is a head whose topic is not gone, return the head."""
        kind = key.split("/")[0]
        if kind == "gone":
            self.gone.add(gone_topics.decode(item.value, key).topic_id)
        elif kind == "topic":
            self.topics.append(topic_items.decode(key.removeprefix(keys.TOPICS), item))
        elif kind == "head":
            self.heads.add(key)
            head = heads.decode(item.value, key)
            # Keys are scanned in order, so all `gone` items were seen before.
            return None if head.topic_id in self.gone else head
        return None


async def _scanned(metadata: Scannable) -> AsyncIterator[Head]:
    seen = _Seen()
    async for some in metadata.every_item():
        for scanned in some:
            if scanned.item is None or (problem := problem_of(scanned)):
                raise MetadataDamaged(scanned.problem or problem)
            head = seen.add(scanned.key, scanned.item)
            if head is not None:
                yield head
    for topic in seen.topics:
        for lane in topic.lanes:
            if (key := keys.head(topic.topic_id, lane)) not in seen.heads:
                raise HeadMissing(topic.name, key)


async def _looked_up(metadata: MetadataStore) -> AsyncIterator[Head]:
    for topic in await _topics(metadata):
        for start in range(0, len(topic.lanes), HEADS_AT_ONCE):
            lanes = topic.lanes[start : start + HEADS_AT_ONCE]
            names = [keys.head(topic.topic_id, lane) for lane in lanes]
            found = await metadata.get_many(names)
            absent = [key for key in names if key not in found]
            for key in absent:
                if await is_lost(metadata, topic.name, key):
                    raise HeadMissing(topic.name, key)
            for key, item in found.items():
                yield heads.decode(item.value, key)


async def sound_topics(metadata: MetadataStore) -> list[Topic]:
    """Return all topics; where the table can be scanned, those whose items are not damaged."""
    if not isinstance(metadata, Scannable):
        return await _topics(metadata)
    return [
        topic_items.decode(scanned.key.removeprefix(keys.TOPICS), scanned.item)
        async for some in metadata.every_item()
        for scanned in some
        if scanned.item is not None
        and scanned.key.startswith(keys.TOPICS)
        and not problem_of(scanned)
    ]


async def _topics(metadata: MetadataStore) -> list[Topic]:
    return [
        topic_items.decode(key.removeprefix(keys.TOPICS), item)
        async for page in pages(metadata, keys.TOPICS)
        for key, item in page
    ]


async def is_lost(metadata: MetadataStore, topic_name: str, key: str) -> bool:
    """Whether the head at `key`, which was not found, is lost and not just deleted.

    The lane belonged to the topic before the head was read. The topic is read again here: if it
    still exists, its heads must exist too.
    """
    item = await metadata.get(keys.topic(topic_name))
    if item is None:
        return False
    topic = topic_items.decode(topic_name, item)
    return any(keys.head(topic.topic_id, lane) == key for lane in topic.lanes)


async def strays(metadata: MetadataStore) -> AsyncIterator[tuple[str, str]]:
    """Yield the keys of items that are not what or where they should be, and why.

    Nothing if the table cannot be scanned. Raises `MetadataDamaged` if it cannot be read at all.
    """
    if not isinstance(metadata, Scannable):
        return
    seen, used = _Seen(), dict[str, bytes]()
    async for some in metadata.every_item():
        for scanned in some:
            if scanned.item is None or (problem := problem_of(scanned)):
                yield scanned.key, scanned.problem or problem
                continue
            head = seen.add(scanned.key, scanned.item)
            # A head that never had a record may be left over from adding partitions.
            if head is not None and (head.runs or head.root):
                used[scanned.key] = head.topic_id
    there = {topic.topic_id for topic in seen.topics}
    for key, topic_id in used.items():
        if topic_id not in there:
            yield key, "the head of a lane whose topic is missing; what it refers to is kept"


def problem_of(scanned: Scanned) -> str:
    """Return what is wrong with an item, judged without other items; empty if nothing is."""
    if scanned.item is None:
        return scanned.problem
    kind = scanned.key.split("/")[0]
    if kind not in COLLECTIONS:
        return f"{scanned.key!r} is not a key of ours: a bit of it may have flipped"
    try:
        if kind == "head":
            heads.decode(scanned.item.value, scanned.key)
        elif kind == "gone":
            gone_topics.decode(scanned.item.value, scanned.key)
        elif kind == "topic":
            topic_items.decode(scanned.key.removeprefix(keys.TOPICS), scanned.item)
    except Corrupt as error:
        return f"{scanned.key}: {error}"
    return ""
