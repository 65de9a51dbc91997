"""Producer ids: unique numbers, allocated in blocks, without a bare increment.

A gateway allocates a block of ids by compare-and-set on one counter and issues them from memory.
If the reply to that write is lost, the block is not used: a gap in the numbers is harmless, a
number issued twice is not. Even ids are plain idempotent producers, which have no item of their
own. Odd ids belong to a transactional id; each has an item that names it.
"""

import asyncio
from typing import Final

import msgspec

from service.world.clock import World
from storage import keys
from storage.cas import retry
from storage.errors import Corrupt, InvalidRequest, UnknownProducer
from storage.formats import frames
from storage.stores.metadata import MetadataStore, Put, Versioned
from storage.topics.items import NAME_CHARS_MAX, is_name

BLOCK_IDS: Final = 1000
FIRST_ID: Final = 1

OWNERS_KEPT_MAX: Final = 1024
"""Maximum number of ids whose transactional id is cached; it never changes."""

_COUNTER_MAGIC: Final = b"RPC1"
_OWNER_MAGIC: Final = b"RPR1"
_COUNTER: Final = msgspec.msgpack.Decoder(int)


def parse_transactional_id(text: str) -> str:
    """Return `text` if it can be a transactional id, or raise `InvalidRequest`."""
    if not is_name(text):
        raise InvalidRequest(
            f"transactional_id: {text[:300]!r} is not a name: use 1 to {NAME_CHARS_MAX}"
            " letters, digits, dots, underscores and hyphens"
        )
    return text


def is_transactional(producer_id: int) -> bool:
    return producer_id % 2 == 1


def owner_op(producer_id: int, transactional_id: str) -> Put:
    """Return the write that makes a new odd id belong to `transactional_id`."""
    value = frames.seal(_OWNER_MAGIC, transactional_id.encode())
    return Put(keys.producer(producer_id), value, None)


def decode_owner(value: bytes) -> str:
    """Return the transactional id that a producer id belongs to, or raise `Corrupt`."""
    try:
        return str(frames.unseal(_OWNER_MAGIC, value), "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"the owner of a producer id cannot be decoded: {error}") from error


class ProducerIds:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world
        self._free: dict[bool, list[int]] = {False: [], True: []}
        """Ids to issue, the next one last; by whether they are transactional."""
        self._taking = asyncio.Lock()
        self._issued_below = FIRST_ID
        self._owners: dict[int, str] = {}

    async def plain(self) -> int:
        """Return an id that was never issued before, for an idempotent producer."""
        return await self._next(False)

    async def transactional(self) -> int:
        """Return an id that was never issued before; write its `owner_op` with what uses it."""
        return await self._next(True)

    async def check_issued(self, producer_id: int) -> None:
        """Raise `UnknownProducer` if this id cannot have been issued."""
        if producer_id >= self._issued_below:
            item = await self._metadata.get(keys.producer_ids())
            self._issued_below = max(self._issued_below, _decode_counter(item))
        if not FIRST_ID <= producer_id < self._issued_below:
            raise _unknown(producer_id)

    async def owner(self, producer_id: int) -> str:
        """Return the transactional id that `producer_id` belongs to, or raise `UnknownProducer`."""
        found = self._owners.get(producer_id)
        if found is None:
            item = await self._metadata.get(keys.producer(producer_id))
            if item is None:
                raise _unknown(producer_id)
            found = self._owners[producer_id] = decode_owner(item.value)
            if len(self._owners) > OWNERS_KEPT_MAX:
                del self._owners[next(iter(self._owners))]
        return found

    async def _next(self, transactional: bool) -> int:
        free = self._free[transactional]
        while not free:
            async with self._taking:
                if not free:
                    await self._take_block()
        return free.pop()

    async def _take_block(self) -> None:
        async def attempt(_: bool) -> int:
            # If the reply to an attempt is lost, take another block: see above.
            item = await self._metadata.get(keys.producer_ids())
            start = _decode_counter(item)
            value = frames.seal(_COUNTER_MAGIC, msgspec.msgpack.encode(start + BLOCK_IDS))
            version = None if item is None else item.version
            await self._metadata.transact([Put(keys.producer_ids(), value, version)])
            return start

        start = await retry("the counter of producer ids", attempt, self._world.patience)
        self._issued_below = max(self._issued_below, start + BLOCK_IDS)
        for transactional, free in self._free.items():
            # The other kind may not be used up yet; then its half of this block is skipped.
            if not free:
                ids = range(start, start + BLOCK_IDS)
                free += [i for i in reversed(ids) if is_transactional(i) == transactional]


def _decode_counter(item: Versioned | None) -> int:
    if item is None:
        return FIRST_ID
    return frames.unpack(_COUNTER_MAGIC, item.value, _COUNTER, "the counter of producer ids")


def _unknown(producer_id: int) -> UnknownProducer:
    return UnknownProducer(
        f"producer id {producer_id} was not given out, or was not used for long and is forgotten;"
        " get one with POST /v1/producers"
    )
