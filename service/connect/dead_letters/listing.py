"""Which topics hold dead letters, and what is in them."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Final

from service.connect.config.common import DLQ_TOPIC
from service.connect.dead_letters.bodies import (
    Continuation,
    DeadLetterTopic,
    LetterFilterBody,
    LetterGroup,
    LetterInfo,
    Letters,
    LetterSummary,
)
from service.connect.dead_letters.reading import Letter, batches, everything, is_meant
from service.connect.dead_letters.sent import SentLetters, decode_sent, union
from service.connect.tasks.items import DELETED, ConnectorItem, decode_connector
from service.connect.tasks.letters import (
    CONNECTOR_NAME,
    CONTEXT_PREFIX,
    EXCEPTION_MESSAGE,
    STAGE,
    error_count,
)
from service.log.gateway import Gateway
from storage import keys
from storage.errors import InvalidTopic, UnknownTopicOrPartition
from storage.stores.metadata import pages

LOOKED_AT_MAX: Final = 20_000
"""Letters that a summary is made of, and that are searched in one call."""

GROUPS_MAX: Final = 1000
SHOWN_CHARS_MAX: Final = 64 * 1024
"""Of a key or a value that is shown."""


async def connectors_with_letters(gateway: Gateway) -> dict[str, list[ConnectorItem]]:
    """Return the connectors that name a topic of dead letters, by its full name."""
    found: dict[str, list[ConnectorItem]] = defaultdict(list)
    async for page in pages(gateway.metadata, keys.CONNECTORS):
        for _, item in page:
            connector = decode_connector(item.value)
            topic = connector.config.get(DLQ_TOPIC, "").strip()
            if topic and connector.target != DELETED:
                found[connector.name_prefix + topic].append(connector)
    return found


async def letter_topic(
    gateway: Gateway, topic: str, connectors: Sequence[ConnectorItem], shown_as: str
) -> DeadLetterTopic:
    """Return how much is in a topic."""
    names = sorted(each.name.removeprefix(each.name_prefix) for each in connectors)
    try:
        infos = await gateway.partitions(topic)
    except (UnknownTopicOrPartition, InvalidTopic):
        return DeadLetterTopic(shown_as, names, 0, exists=False)
    count = sum(info.high_watermark - info.log_start_offset for info in infos)
    return DeadLetterTopic(shown_as, names, count, exists=True)


async def summary_of(gateway: Gateway, topic: str, shown_as: str) -> LetterSummary:
    """Return the letters of a topic by exception and origin."""
    groups: dict[tuple[str, str, str, str], LetterGroup] = {}
    looked_at = 0
    places = await everything(gateway, topic)
    sent = await sent_of(gateway, topic)
    for place in places:
        if looked_at >= LOOKED_AT_MAX:
            break
        async with aclosing(batches(gateway, topic, place)) as found:
            async for letters, _ in found:
                looked_at += len(letters)
                for letter in letters:
                    _count(groups, letter, sent)
                if looked_at >= LOOKED_AT_MAX:
                    break
    return LetterSummary(
        topic=shown_as,
        letters=sum(place.end - place.offset for place in places),
        looked_at=looked_at,
        groups=sorted(groups.values(), key=lambda each: -each.count),
    )


def _count(
    groups: dict[tuple[str, str, str, str], LetterGroup],
    letter: Letter,
    sent: dict[int, SentLetters],
) -> None:
    context = letter.context
    key = (
        letter.exception,
        letter.origin,
        context.get(CONNECTOR_NAME, ""),
        context.get(STAGE, ""),
    )
    group = groups.get(key)
    at_ms = letter.record.timestamp_ms or 0
    if group is None:
        if len(groups) >= GROUPS_MAX:
            return
        group = groups[key] = LetterGroup(*key, 0, 0, at_ms, at_ms, "")
    group.count += 1
    group.sent += _is_sent(letter, sent)
    group.first_ms = min(group.first_ms, at_ms)
    if at_ms >= group.last_ms:
        group.last_ms = at_ms
        group.example = context.get(EXCEPTION_MESSAGE, "")[:500]


async def shown(
    gateway: Gateway,
    topic: str,
    wanted: LetterFilterBody,
    within: Sequence[Continuation],
    count_max: int,
) -> Letters:
    """Return letters that are meant, at most so many, and where to go on."""
    sent = await sent_of(gateway, topic)
    found: list[LetterInfo] = []
    looked_at = 0
    left = list(within)
    while left and len(found) < count_max and looked_at < LOOKED_AT_MAX:
        place = left.pop(0)
        offset = place.offset
        async with aclosing(batches(gateway, topic, place)) as read:
            async for letters, end in read:
                offset = end
                for letter in letters:
                    if len(found) == count_max:
                        offset = letter.record.offset
                        break
                    if is_meant(letter, wanted):
                        found.append(_shown(letter, is_sent=_is_sent(letter, sent)))
                looked_at += len(letters)
                if len(found) == count_max or looked_at >= LOOKED_AT_MAX:
                    break
            else:
                offset = place.end
        if offset < place.end:
            left.insert(0, Continuation(place.partition, offset, place.end))
    return Letters(found, left)


async def sent_of(gateway: Gateway, topic: str) -> dict[int, SentLetters]:
    """Return which letters were sent again, to any destination, by partition."""
    prefix = keys.redrives_of((await gateway.topics.get(topic)).topic_id)
    by_partition: dict[int, list[SentLetters]] = defaultdict(list)
    async for page in pages(gateway.metadata, prefix):
        for key, item in page:
            partition = int(key.removeprefix(prefix).split("/")[0])
            by_partition[partition].append(decode_sent(item.value))
    return {partition: union(all_sent) for partition, all_sent in by_partition.items()}


def _is_sent(letter: Letter, sent: dict[int, SentLetters]) -> bool:
    found = sent.get(letter.partition)
    return found is not None and letter.record.offset in found


def _shown(letter: Letter, *, is_sent: bool) -> LetterInfo:
    record = letter.record
    info = LetterInfo(letter.partition, record.offset, record.timestamp_ms or 0)
    info.key, info.key_base64 = _as_text(record.key)
    info.value, info.value_base64 = _as_text(record.value)
    info.headers = dict(_plain(record.headers))
    info.context = {
        name.removeprefix(CONTEXT_PREFIX): text for name, text in letter.context.items()
    }
    info.count = error_count(record.headers)
    info.sent = is_sent
    return info


def _plain(
    headers: Iterable[tuple[str, bytes | None]],
) -> Iterable[tuple[str, str | None]]:
    for name, value in headers:
        if not name.startswith(CONTEXT_PREFIX):
            yield name, None if value is None else value.decode("utf-8", "replace")


def _as_text(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, or in base64."""
    if data is None:
        return None, None
    try:
        return data.decode()[:SHOWN_CHARS_MAX], None
    except UnicodeDecodeError:
        return None, base64.b64encode(data[:SHOWN_CHARS_MAX]).decode()
