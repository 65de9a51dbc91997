"""The data keys of topics: created, wrapped, stored, cached and replaced.

    data-key/<topic id>/<number>  =  [wrapped key, name of the key that wrapped it,
                                      ms of creation, partitions of a lane], in a frame

A topic has no data key before its first record. The newest one seals, the others only open. A new
one is made `ROTATE_MS` after the newest, or after `SEALS_MAX` slices of one gateway: with random
nonces a key should seal fewer than 2**32, and this keeps it below 2**31 for 64 gateways.

A key is created by a compare-and-set: its item must not exist, and its topic must. So two gateways
agree on one, and a key is never made for a topic that is gone: shredding deletes the topic and all
its keys in one transaction, which requires that there is no newer one (`shredding`). A reply that
was lost is no problem: the next attempt finds the key.

A key is kept in memory for at most `AGE_S_MAX`; then it is read and unwrapped again, which fails
once it is shredded, or the key that wrapped it is disabled.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from storage import keys
from storage.cas import Patience, retry
from storage.crypto.envelope import KEY_BYTES, DataKey, Sealer, aead
from storage.crypto.wrapping import KeyWrapper, KeyWrappers
from storage.errors import (
    EncryptionKeyUnavailable,
    InvalidConfig,
    NotSupported,
    UnknownTopicOrPartition,
)
from storage.formats import frames
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.stores.metadata import Check, MetadataStore, Put, pages
from storage.tasks import SingleFlight
from storage.topics import items
from storage.topics.config import TopicConfig
from storage.topics.items import Topic

AGE_S_MAX: Final = 300.0
"""Maximum time for which an unwrapped key is used without reading its item again."""

ROTATE_MS: Final = 30 * 24 * 3600 * 1000
SEALS_MAX: Final = 2**25
NUMBER_MAX: Final = 99_999_999
"""As many digits as a key of the table has for it: one key a month lasts."""

CREATE_ATTEMPTS_MAX: Final = 10

_MAGIC: Final = b"RDK1"


class StoredKey(msgspec.Struct, array_like=True, frozen=True):
    wrapped: bytes
    kek: str
    created_ms: int
    lane_partitions: int
    """Of the topic. Sealed bytes are bound to the partition of the topic, but a head knows only
    partitions of its lane."""


_DECODER: Final = msgspec.msgpack.Decoder(StoredKey)


def encode(stored: StoredKey) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(stored))


def decode(value: bytes) -> StoredKey:
    """Return the item, or raise `Corrupt`."""
    return frames.unpack(_MAGIC, value, _DECODER, "a data key")


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A data key in memory."""

    key: DataKey
    stored: StoredKey
    read_s: float

    def unseal(self, partition: PartitionNumber) -> Callable[[bytes, int], bytes]:
        """Return what opens row groups of a partition, given their start offset."""

        def unseal(data: bytes, start_offset: int) -> bytes:
            return self.key.open(data, partition, start_offset)

        return unseal

    def partition_of(self, lane: int, partition: LanePartition) -> PartitionNumber:
        """Return the number in the topic of a partition of the lane."""
        return PartitionNumber(lane * self.stored.lane_partitions + partition)


@dataclass(frozen=True, slots=True)
class _Current:
    """The key that seals."""

    open: OpenKey
    sealer: Sealer


class Keyring:
    """The data keys of all topics, as far as this process needs them."""

    def __init__(
        self,
        metadata: MetadataStore,
        wrappers: KeyWrappers,
        *,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        patience: Patience | None = None,
    ) -> None:
        self._metadata = metadata
        self._wrappers = wrappers
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._random_bytes = random_bytes
        self._patience = patience or Patience(CREATE_ATTEMPTS_MAX)
        self._current: dict[bytes, _Current] = {}
        self._open: dict[tuple[bytes, int], OpenKey] = {}
        self._renewing = SingleFlight[bytes, Sealer]()
        self._opening = SingleFlight[tuple[bytes, int], OpenKey]()

    async def check(self, config: TopicConfig, topic_id: bytes) -> None:
        """Raise `InvalidConfig` unless the key that `config` names can wrap and unwrap.

        Raises `StoreUnavailable` if that cannot be found out now.
        """
        wrapper = self._wrappers.named(config.kek)
        secret = self._random_bytes(KEY_BYTES)
        aead(secret)
        try:
            found = await wrapper.unwrap(await wrapper.wrap(secret, topic_id), topic_id)
        except EncryptionKeyUnavailable as error:
            raise InvalidConfig(f"config: encryption.kek: {error}") from error
        if found != secret:
            raise InvalidConfig(f"config: encryption.kek: {config.kek} unwraps something else")

    def sealing(self, topic: Topic) -> Sealer | None:
        """Return what seals the topic's slices now; None: ask `sealer`."""
        current = self._current.get(topic.topic_id)
        if current is None or not self._is_fresh(current.open) or self._is_due(current):
            return None
        return current.sealer

    async def sealer(self, topic: Topic) -> Sealer:
        """Return what seals the topic's slices now; create a data key if one is due.

        Raises `EncryptionKeyUnavailable`, `UnknownTopicOrPartition` if the topic is gone, and
        what the table raises.
        """
        found = self.sealing(topic)
        if found is not None:
            return found
        return await self._renewing.do(topic.topic_id, lambda: self._renewed(topic))

    async def _renewed(self, topic: Topic) -> Sealer:
        current = self._current.get(topic.topic_id)
        self._drop_old()
        worn = 0
        if current is not None and current.sealer.seals >= SEALS_MAX:
            worn = current.open.key.number
        wrapper = self._wrappers.named(topic.config.kek)

        async def attempt(_: bool) -> OpenKey:
            stored = await self._stored(topic.topic_id)
            newest = max(stored, default=0)
            if newest > worn and not self._is_old(stored[newest]):
                return await self.key(topic.topic_id, newest)
            return await self._created(topic, newest + 1, wrapper)

        found = await retry(f"the data key of topic {topic.name!r}", attempt, self._patience)
        is_same = current is not None and current.open.key.number == found.key.number
        seals = current.sealer.seals if current is not None and is_same else 0
        sealer = Sealer(found.key, self._random_bytes, seals)
        self._current[topic.topic_id] = _Current(found, sealer)
        return sealer

    async def _stored(self, topic_id: bytes) -> dict[int, StoredKey]:
        prefix = keys.data_keys_of(topic_id)
        return {
            int(key.removeprefix(prefix)): decode(item.value)
            async for page in pages(self._metadata, prefix)
            for key, item in page
        }

    async def _created(self, topic: Topic, number: int, wrapper: KeyWrapper) -> OpenKey:
        """Create a data key, unless another process did or the topic is gone."""
        secret = self._random_bytes(KEY_BYTES)
        item = await self._metadata.get(keys.topic(topic.name))
        if item is None or items.decode(topic.name, item).topic_id != topic.topic_id:
            raise UnknownTopicOrPartition(f"topic {topic.name!r} was deleted")
        read_s = self._monotonic_s()
        wrapped = await wrapper.wrap(secret, topic.topic_id)
        stored = StoredKey(wrapped, topic.config.kek, self._now_ms(), topic.lane_partitions)
        await self._metadata.transact(
            [
                Put(keys.data_key(topic.topic_id, number), encode(stored), None),
                Check(keys.topic(topic.name), item.version),
            ]
        )
        found = OpenKey(DataKey(topic.topic_id, number, secret), stored, read_s)
        self._open[topic.topic_id, number] = found
        return found

    async def key(self, topic_id: bytes, number: int) -> OpenKey:
        """Return a data key of a topic.

        Raises `EncryptionKeyUnavailable` if it was shredded or cannot be unwrapped, and
        `StoreUnavailable`.
        """
        found = self._open.get((topic_id, number))
        if found is not None and self._is_fresh(found):
            return found
        name = topic_id, number
        return await self._opening.do(name, lambda: self._read(topic_id, number))

    async def keys(self, topic_id: bytes, numbers: Collection[int]) -> Mapping[int, OpenKey]:
        """Return several data keys of a topic, by number; see `key`."""
        ordered = sorted(set(numbers))
        found = await asyncio.gather(*(self.key(topic_id, number) for number in ordered))
        return dict(zip(ordered, found, strict=True))

    async def _read(self, topic_id: bytes, number: int) -> OpenKey:
        self._drop_old()
        read_s = self._monotonic_s()
        item = await self._metadata.get(keys.data_key(topic_id, number))
        if item is None:
            raise EncryptionKeyUnavailable(
                f"the records are sealed with data key {number} of their topic, which was destroyed"
            )
        stored = decode(item.value)
        wrapper = self._wrappers.named(stored.kek)
        secret = await wrapper.unwrap(stored.wrapped, topic_id)
        found = OpenKey(DataKey(topic_id, number, secret), stored, read_s)
        self._open[topic_id, number] = found
        return found

    def forget(self, topic_id: bytes) -> None:
        """Drop the keys of a topic from memory."""
        self._current.pop(topic_id, None)
        self._open = {name: each for name, each in self._open.items() if name[0] != topic_id}

    def _drop_old(self) -> None:
        self._open = {name: each for name, each in self._open.items() if self._is_fresh(each)}
        current = self._current
        self._current = {id_: each for id_, each in current.items() if self._is_fresh(each.open)}

    def _is_fresh(self, found: OpenKey) -> bool:
        return self._monotonic_s() - found.read_s <= AGE_S_MAX

    def _is_due(self, current: _Current) -> bool:
        return current.sealer.seals >= SEALS_MAX or self._is_old(current.open.stored)

    def _is_old(self, stored: StoredKey) -> bool:
        return self._now_ms() - stored.created_ms >= ROTATE_MS


def required(keyring: Keyring | None) -> Keyring:
    """Return the keyring, or raise `NotSupported` in a process that was given none."""
    if keyring is None:
        raise NotSupported("this process cannot open the records of encrypted topics")
    return keyring
