"""Topics: names, partitions and configuration, and the heads that come with them.

A topic is one item, and one head for each of its lanes. The order of writes makes a crash
harmless: heads are written before the topic's item and removed after it. Deleting the heads
also stops a gateway that does not know of the deletion yet: it has no head to commit to.
Heads that a crash leaves behind are found by `storage/topics/deleted.py`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from storage import keys
from storage.cas import Again, BackOff, Patience, retry
from storage.errors import (
    HeadGone,
    HeadMissing,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    MetadataConflict,
    NotSupported,
    OutcomeUnknown,
    StoreUnavailable,
    TopicExists,
    UnknownTopicOrPartition,
)
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.replication import place, reassigned, with_factor
from storage.stores.dated import CallBegan, DatedMetadata
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)
from storage.tasks import SingleFlight
from storage.topics import deleted as gone_topics
from storage.topics.config import SETTINGS, TopicConfig, parse_config
from storage.topics.deleted import GoneTopic
from storage.topics.items import (
    NAME_CHARS_MAX,
    StoredTopic,
    Topic,
    decode,
    encode,
    lane_count,
    lane_width,
    parse_topic_name,
)
from storage.topics.shredding import shredding

__all__ = ["NAME_CHARS_MAX", "PARTITIONS_MAX", "Topic", "Topics", "parse_topic_name"]

log = logging.getLogger("riacho")

IN_SYNC_MIN: Final = "min.insync.replicas"

PARTITIONS_MAX: Final = 10_000
TOPIC_ATTEMPTS_MAX: Final = 10
HEAD_DELETION_ATTEMPTS_MAX: Final = 10
DELETE_WHOLE_ATTEMPTS_MAX: Final = 3
"""Maximum attempts to delete a topic and its heads in one transaction. If commits conflict with
all of them, the topic is deleted first, then its heads one by one."""

ConfigChange: TypeAlias = Mapping[str, object | None]
"""New values of settings; None: back to the default."""

CheckKey: TypeAlias = Callable[[TopicConfig, bytes], Awaitable[None]]
"""Raises `InvalidConfig` unless the key of an encrypted topic can be used (crypto/keyring.py)."""


class Topics:
    """The topics of a deployment; what was read within `age_max_s` is not read again."""

    def __init__(
        self,
        metadata: MetadataStore,
        zone_names: Sequence[str],
        new_id: Callable[[], bytes],
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        age_max_s: float = 1.0,
        *,
        back_off: BackOff | None = None,
        check_key: CheckKey | None = None,
    ) -> None:
        """Keep topics in `metadata`; without `check_key`, no encrypted topic is created."""
        self._metadata = metadata
        self._dated = DatedMetadata(metadata, monotonic_s)
        self._zone_names = tuple(zone_names)
        self._new_id = new_id
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._age_max_s = age_max_s
        self._check_key = check_key
        self._patience = Patience(TOPIC_ATTEMPTS_MAX, back_off)
        self._known: dict[str, tuple[Topic, CallBegan]] = {}
        self._reading = SingleFlight[str, Topic]()

    async def get(self, name: str) -> Topic:
        """Return the topic as it was at most `age_max_s` ago.

        Raises `UnknownTopicOrPartition` if there is none.
        """
        known = self._known.get(name)
        if known is not None and self._monotonic_s() - known[1] <= self._age_max_s:
            return known[0]
        # Concurrent callers share one read, and continue in the order in which they called.
        read = partial(self.read, name)
        now_s = self._monotonic_s()
        return await self._reading.do(name, read, now_s=now_s, age_max_s=self._age_max_s)

    async def read(self, name: str) -> Topic:
        """Return the topic as it is now."""
        parse_topic_name(name)
        item, began_s = await self._dated.get(keys.topic(name))
        if item is None:
            self._known.pop(name, None)
            raise UnknownTopicOrPartition(
                f"there is no topic {name!r}; create it with POST /v1/topics"
            )
        return self._know(decode(name, item), began_s)

    def _know(self, topic: Topic, began_s: CallBegan) -> Topic:
        self._known[topic.name] = (topic, began_s)
        return topic

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    async def all(self) -> list[Topic]:
        return [
            decode(key.removeprefix(keys.TOPICS), item)
            async for page in pages(self._metadata, keys.TOPICS)
            for key, item in page
        ]

    async def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
        dry_run: bool = False,
        caps_in_sync_min: bool = False,
    ) -> Topic:
        """Create a topic. Raises `TopicExists`, or a `Rejected` that says what is wrong.

        With `dry_run` nothing is stored: it returns the topic as it would be. With
        `caps_in_sync_min`, `min.insync.replicas` may exceed the factor, and then means all.
        """
        parse_topic_name(name)
        settings = TopicConfig(parse_config(config or {}))
        self._check_shape(partitions, replication_factor, settings)
        if not caps_in_sync_min:
            _check_in_sync_min(replication_factor, settings)
        stored = StoredTopic(
            self._new_id(), partitions, replication_factor, dict(settings.given), self._now_ms()
        )
        if settings.is_encrypted:
            if self._check_key is None:
                raise NotSupported("this process cannot create encrypted topics")
            await self._check_key(settings, stored.topic_id)

        async def attempt(_: bool) -> Topic:
            item, began_s = await self._dated.get(keys.topic(name))
            if item is None and dry_run:
                return decode(name, Versioned(encode(stored), ""))
            if item is None:
                return await self._write(name, stored, None)
            topic = decode(name, item)
            if topic.topic_id != stored.topic_id:
                raise TopicExists(f"topic {name!r} exists already")
            # An earlier attempt whose reply was lost created it.
            return self._know(topic, began_s)

        return await retry(f"topic {name!r}", attempt, self._patience)

    async def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: ConfigChange | Callable[[TopicConfig], ConfigChange] | None = None,
        replication_factor: int | None = None,
        replicas: Sequence[str] | None = None,
        dry_run: bool = False,
        caps_in_sync_min: bool = False,
    ) -> Topic:
        """Add partitions and change settings; a setting given as None returns to its default.

        `config` may be a function of the settings as they are: what it returns is applied to them
        in one compare-and-set.

        `replicas` names the zones to hold the topic, `replication_factor` only their number.
        The controller copies existing data to new zones, then removes the old ones. With `dry_run`
        nothing is stored: it returns the topic as it would be. `caps_in_sync_min` is as in
        `create`; without it, a factor may not be lowered below `min.insync.replicas`, either.
        """
        if replicas is not None:
            self._check_replicas(replicas, replication_factor)
            replication_factor = len(replicas)

        async def attempt(_: bool) -> Topic | Again:
            # Repeating this is harmless: it requests the same state again.
            topic = await self.read(name)
            factor = replication_factor or topic.replication_factor
            changes = config(topic.config) if callable(config) else config or {}
            count, settings = self._altered(topic, partitions, factor, changes)
            is_lowered = factor < topic.replication_factor
            if not caps_in_sync_min and (is_lowered or IN_SYNC_MIN in changes):
                _check_in_sync_min(factor, TopicConfig(settings))
            stored = StoredTopic(topic.topic_id, count, factor, settings, topic.created_ms)
            if dry_run:
                return decode(name, Versioned(encode(stored), topic.version))
            # The item first: replicas of a lane beyond the item's factor are being removed.
            try:
                altered = await self._write(name, stored, topic)
            except HeadGone as error:
                if (await self.read(name)).topic_id == topic.topic_id:
                    raise HeadMissing(name, error.key) from error
                return Again()
            if replicas is not None or factor != topic.replication_factor:
                await self._reassign(altered, replicas)
            return altered

        return await retry(f"topic {name!r}", attempt, self._patience)

    async def _reassign(self, topic: Topic, replicas: Sequence[str] | None) -> None:
        for lane in topic.lanes:

            def moved(head: Head, lane: int = lane) -> Head:
                if replicas is None:
                    return with_factor(head, topic.replication_factor, self._zone_names)
                turn = lane % len(replicas)
                return reassigned(head, [*replicas[turn:], *replicas[:turn]])

            await change_head(self._metadata, keys.head(topic.topic_id, lane), moved)

    async def delete(
        self, name: str, *, shred: bool = False, only_id: bytes | None = None
    ) -> Topic:
        """Remove the topic, if its identifier is `only_id` or none is given; sweeps do the rest.

        `shred` also removes the data keys of an encrypted topic, in the same transaction. Raises
        `InvalidRequest` if it is not encrypted.
        """
        topic: Topic | None = None
        attempts = 0

        async def attempt(_: bool) -> Topic:
            nonlocal topic, attempts
            try:
                found = await self.read(name)
            except UnknownTopicOrPartition:
                if topic is None:
                    raise
                found = None
            attempts += 1
            if topic is None and found is not None and only_id not in (None, found.topic_id):
                raise UnknownTopicOrPartition(f"topic {name!r} has another identifier")
            if topic is None or (found is not None and found.topic_id == topic.topic_id):
                assert found is not None, name
                topic = found
                if shred and not topic.config.is_encrypted:
                    raise InvalidRequest(
                        f"topic {name!r} is not encrypted, so it has no keys to shred"
                    )
                keys_of = await shredding(self._metadata, topic.topic_id) if shred else []
                is_whole = attempts <= DELETE_WHOLE_ATTEMPTS_MAX
                await self._delete_item(topic, keys_of, with_heads=is_whole)
            # Else an earlier attempt whose reply was lost deleted it; it may exist again since.
            self.forget(name)
            await self._delete_heads(topic)
            return topic

        return await retry(f"topic {name!r}", attempt, self._patience)

    async def _write(self, name: str, stored: StoredTopic, old: Topic | None) -> Topic:
        """Write the heads that the topic needs, then the topic itself in place of `old`."""
        value, key = encode(stored), keys.topic(name)
        last: list[Op] = [Put(key, value, None if old is None else old.version)]
        if old is None and stored.lane_count >= TRANSACT_OPS_MAX:
            # It takes several transactions, so a sweeper must find the heads if we are interrupted.
            # Announced before they are read: from now on a sweep removes none of them.
            last.append(await self._announced(name, stored))
        made = await self._missing_heads(stored, 0 if old is None else old.partition_count)
        while len(made) + len(last) > TRANSACT_OPS_MAX:
            await self._metadata.transact(made[:TRANSACT_OPS_MAX])
            made = made[TRANSACT_OPS_MAX:]
        versions, began_s = await self._dated.transact([*made, *last])
        return self._know(decode(name, Versioned(value, versions[key])), began_s)

    async def _announced(self, name: str, stored: StoredTopic) -> Op:
        """Note that heads are being made; return the op that removes that note."""
        key = keys.gone_topic(stored.topic_id)
        gone = GoneTopic(stored.topic_id, name, stored.lane_count, self._now_ms())
        item = await self._metadata.get(key)
        expected = None if item is None else item.version
        versions = await self._metadata.transact([Put(key, gone_topics.encode(gone), expected)])
        return Delete(key, versions[key])

    def _check_replicas(self, replicas: Sequence[str], factor: int | None) -> None:
        for name in replicas:
            if name not in self._zone_names:
                known = ", ".join(self._zone_names)
                raise InvalidRequest(f"replicas: there is no zone {name!r}; there are {known}")
        if len(set(replicas)) != len(replicas) or not replicas:
            raise InvalidRequest("replicas: name one zone or more, each once")
        if factor not in (None, len(replicas)):
            raise InvalidRequest("replicas: give either the zones or the replication_factor")

    def _check_shape(self, partitions: int, replication_factor: int, settings: TopicConfig) -> None:
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(f"partitions must be from 1 to {PARTITIONS_MAX}")
        if not 1 <= replication_factor <= len(self._zone_names):
            raise InvalidReplicationFactor(
                f"replication_factor must be from 1 to {len(self._zone_names)}, the number of"
                f" zones, not {replication_factor}"
            )
        settings.check_encryption()
        settings.check_columns()

    def _altered(
        self,
        topic: Topic,
        partitions: int | None,
        factor: int,
        changes: ConfigChange,
    ) -> tuple[int, dict[str, str]]:
        given = parse_config({k: v for k, v in changes.items() if v is not None})
        removed = parse_config(
            {k: SETTINGS[k].default if k in SETTINGS else "" for k in changes if changes[k] is None}
        )
        config = {k: v for k, v in {**topic.config.given, **given}.items() if k not in removed}
        for name, setting in SETTINGS.items():
            if setting.fixed and TopicConfig(config)[name] != topic.config[name]:
                raise InvalidConfig(f"config: {name} cannot be changed after creation")
        count = topic.partition_count if partitions is None else partitions
        if count < topic.partition_count:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partition_count} partitions;"
                f" they can only become more, not {count}"
            )
        self._check_shape(count, factor, TopicConfig(config))
        return count, config

    async def _missing_heads(self, stored: StoredTopic, partition_count: int) -> list[Op]:
        """Return the writes that add all partitions from `partition_count` on to heads."""
        if stored.partition_count == partition_count:
            return []
        width = int(TopicConfig(stored.config)["lane.partitions"])
        lanes = range(partition_count // width, lane_count(stored.partition_count, width))
        items = await self._metadata.get_many([keys.head(stored.topic_id, n) for n in lanes])
        ops: list[Op] = []
        for lane in lanes:
            key = keys.head(stored.topic_id, lane)
            wide = lane_width(stored.partition_count, width, lane)
            item = items.get(key)
            if item is None and lane * width < partition_count:
                # The head is lost. A new one would say that nothing was ever written.
                raise HeadGone(key)
            if item is None:
                zones = place(stored.topic_id, lane, stored.replication_factor, self._zone_names)
                head = heads.create(stored.topic_id, lane, wide, zones)
                ops.append(Put(key, heads.encode(head), None))
                continue
            head = heads.decode(item.value, key)
            if head.partition_count < wide:
                ops.append(Put(key, heads.encode(heads.widen(head, wide)), item.version))
        return ops

    async def _delete_item(self, topic: Topic, with_it: Sequence[Op], *, with_heads: bool) -> None:
        ops: list[Op] = [Delete(keys.topic(topic.name), topic.version), *with_it]
        if with_heads and len(topic.lanes) + len(ops) <= TRANSACT_OPS_MAX:
            ops += await self._head_deletions(topic, topic.lanes)
        else:
            gone = GoneTopic(topic.topic_id, topic.name, len(topic.lanes), self._now_ms())
            ops.append(Put(keys.gone_topic(topic.topic_id), gone_topics.encode(gone), None))
        await self._metadata.transact(ops)

    async def _delete_heads(self, topic: Topic) -> None:
        """Remove the heads of a deleted topic. Failures are logged: a sweeper removes the rest."""
        is_done = True
        try:
            for start in range(0, len(topic.lanes), TRANSACT_OPS_MAX):
                lanes = topic.lanes[start : start + TRANSACT_OPS_MAX]
                if not await self._tried_to_delete(topic, lanes):
                    for lane in lanes:
                        is_done &= await self._delete_head(topic, lane)
            if is_done:
                await self._forget_gone(topic)
        except (StoreUnavailable, MetadataConflict, OutcomeUnknown) as error:
            log.warning("heads of the deleted topic %r were left behind: %s", topic.name, error)

    async def _delete_head(self, topic: Topic, lane: int) -> bool:
        for _ in range(HEAD_DELETION_ATTEMPTS_MAX):
            if await self._tried_to_delete(topic, range(lane, lane + 1)):
                return True
        return False

    async def _forget_gone(self, topic: Topic) -> None:
        key = keys.gone_topic(topic.topic_id)
        item = await self._metadata.get(key)
        if item is not None:
            await self._metadata.transact([Delete(key, item.version)])

    async def _tried_to_delete(self, topic: Topic, lanes: range) -> bool:
        """Remove heads; return False after a conflict with a commit or an unknown outcome."""
        ops = await self._head_deletions(topic, lanes)
        try:
            if ops:
                await self._metadata.transact(ops)
        except (MetadataConflict, OutcomeUnknown):
            return False
        return True

    async def _head_deletions(self, topic: Topic, lanes: range) -> list[Op]:
        items = await self._metadata.get_many([keys.head(topic.topic_id, n) for n in lanes])
        return [Delete(key, item.version) for key, item in items.items()]


def _check_in_sync_min(replication_factor: int, settings: TopicConfig) -> None:
    if settings.in_sync_min > replication_factor:
        raise InvalidConfig(
            f"config: {IN_SYNC_MIN} cannot exceed the replication_factor {replication_factor}"
        )
