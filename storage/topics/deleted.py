"""Topics that are being made or deleted with more than one transaction.

Heads cannot be listed, and a topic of many lanes is made and deleted by several transactions. If
they are interrupted, heads would be left that no process finds. So this item records the topic:

    make     put the item with the first heads …   topic, and delete the item
    delete   delete the topic, and put the item …  heads, one by one …  delete the item

A sweeper that finds an old item deletes the heads, and then the item. The maker's last transaction
requires that the item is unchanged. So does each removal of a sweeper, which rewrites the item
first: one of the two fails.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from storage import keys
from storage.cas import Transact
from storage.errors import Corrupt, MetadataConflict
from storage.formats import frames
from storage.stores.metadata import Check, Delete, MetadataStore, Op, Put, Versioned, pages

_MAGIC: Final = b"RGN1"

HEADS_AT_ONCE: Final = 50
REMOVAL_ATTEMPTS_MAX: Final = 10


class GoneTopic(msgspec.Struct, array_like=True, frozen=True):
    topic_id: bytes
    name: str
    lanes: int
    at_ms: int
    looks: int = 0
    """How often a sweeper began to remove the heads."""


_DECODER: Final = msgspec.msgpack.Decoder(GoneTopic)


def encode(gone: GoneTopic) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(gone))


def decode(value: bytes, key: str | None = None) -> GoneTopic:
    """Return the item, or raise `Corrupt`; also if it was found at another `key` than its own."""
    gone = frames.unpack(_MAGIC, value, _DECODER, "the item of a topic that is gone")
    if key is not None and key != (own := keys.gone_topic(gone.topic_id)):
        raise Corrupt(f"the item at {key} is that of another topic, {own}")
    return gone


async def left_behind(metadata: MetadataStore, cutoff_ms: int) -> list[GoneTopic]:
    """Return the topics whose heads may have been left behind at `cutoff_ms` or before."""
    found = [
        decode(item.value, key)
        async for page in pages(metadata, keys.GONE_TOPICS)
        for key, item in page
    ]
    return [gone for gone in found if gone.at_ms <= cutoff_ms]


async def remove_heads(
    metadata: MetadataStore,
    gone: GoneTopic,
    is_topic: Callable[[], Awaitable[bool]],
    transact: Transact,
) -> int:
    """Remove the remaining heads of a topic that is gone; return how many were removed.

    `is_topic` returns whether a topic with that identifier exists now after all. Raises
    `MetadataConflict` if another process changes the same items.
    """
    key = keys.gone_topic(gone.topic_id)
    item = await metadata.get(key)
    if item is None:
        return 0
    claimed = encode(msgspec.structs.replace(gone, looks=gone.looks + 1))
    version = (await transact([Put(key, claimed, item.version)]))[key]
    removed = 0
    if not await is_topic():
        for start in range(0, gone.lanes, HEADS_AT_ONCE):
            lanes = range(start, min(start + HEADS_AT_ONCE, gone.lanes))
            names = [keys.head(gone.topic_id, lane) for lane in lanes]
            removed += await _remove(metadata, Check(key, version), names, transact)
    await transact([Delete(key, version)])
    return removed


async def _remove(
    metadata: MetadataStore, ours: Check, names: Sequence[str], transact: Transact
) -> int:
    """Remove heads while the item is `ours`; otherwise they may belong to an existing topic."""
    for attempt in range(REMOVAL_ATTEMPTS_MAX):
        items: Mapping[str, Versioned] = await metadata.get_many(names)
        ops: list[Op] = [Delete(key, item.version) for key, item in items.items()]
        try:
            if ops:
                await transact([*ops, ours])
            return len(ops)
        except MetadataConflict:
            # A gateway that does not know of the deletion still commits, or the item changed.
            now = await metadata.get(ours.key)
            if now is None or now.version != ours.expected or attempt + 1 == REMOVAL_ATTEMPTS_MAX:
                raise
    return 0
