"""Tasks that workers of any kind can import."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from service.jobs.runners.runners import GROUP
from service.jobs.stores import Stores
from storage.errors import OffsetOutOfRange, StoreUnavailable

KEYS = pa.schema(
    [pa.field(GROUP, pa.int64(), nullable=False), ("key", pa.binary()), ("offset", pa.int64())]
)
OFFSETS = pa.schema([pa.field(GROUP, pa.int64(), nullable=False), ("offset", pa.int64())])
RANGE = 10


async def doubled(_: Stores, payload: bytes) -> bytes:
    return payload * 2


async def written(stores: Stores, payload: bytes) -> bytes:
    """Write something, and tell who did, with which stores."""
    [zone] = stores.zones.names
    await stores.zones.store(zone).put(f"x/{payload.decode()}", [payload])
    return json.dumps([os.getpid(), threading.get_ident(), id(stores)]).encode()


async def out_of_range(_: Stores, payload: bytes) -> bytes:
    if payload == b"bad":
        raise OffsetOutOfRange(7, 1, 2)
    return payload


async def unavailable(_: Stores, payload: bytes) -> bytes:
    if payload == b"bad":
        raise StoreUnavailable("the store is away")
    return payload


async def mistaken(_: Stores, payload: bytes) -> bytes:
    return payload if payload != b"bad" else str(1 // 0).encode()


async def killed(_: Stores, payload: bytes) -> bytes:
    if payload == b"bad":
        os._exit(9)
    return payload


async def endless(_: Stores, payload: bytes) -> bytes:
    """Touch a file, and never end; touch another one when cancelled."""
    path = Path(payload.decode())
    if path.name == "short":
        return payload
    path.touch()
    try:
        await asyncio.Event().wait()
    finally:
        path.with_suffix(".ended").touch()
    return payload


async def keys_of(_: Stores, payload: bytes) -> AsyncIterator[pa.RecordBatch]:
    """Yield the records `[offset, key]` of a range, to the bucket of their key."""
    for offset, key in json.loads(payload):
        bucket = len(key) % 3
        yield pa.RecordBatch.from_pydict(
            {GROUP: [bucket], "key": [key.encode()], "offset": [offset]}, schema=KEYS
        )


async def last_of(_: Stores, group: int, table: pa.Table) -> AsyncIterator[pa.RecordBatch]:
    """Yield the last offset of every key, to the range it is in."""
    assert table.schema.names == KEYS.names
    assert table.column("offset").to_pylist() == sorted(table.column("offset").to_pylist())
    assert set(table.column(GROUP).to_pylist()) == {group}
    last = table.group_by("key").aggregate([("offset", "max")]).column("offset_max")
    ranges = pc.divide(last, RANGE)
    for batch in pa.table([ranges, last], schema=OFFSETS).to_batches():
        yield batch


async def kept(_: Stores, group: int, table: pa.Table) -> bytes:
    return json.dumps([group, table.column("offset").to_pylist()]).encode()
