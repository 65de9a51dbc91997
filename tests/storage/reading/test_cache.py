"""The byte cache: bounded, least recently used leaves first, concurrent loads are shared."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import StoreUnavailable
from storage.reading.cache import ByteCache
from tests.examples import some
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


@some
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 12)), max_size=60))
def test_the_cache_stays_within_its_limit_and_keeps_recently_used_values(
    steps: list[tuple[bool, int, int]],
) -> None:
    cache = ByteCache[int, bytes](20, len)
    model: dict[int, bytes] = {}  # Ordered by last use.

    for is_put, key, size in steps:
        if is_put:
            cache.put(key, bytes(size))
            model.setdefault(key, bytes(size))
            while sum(map(len, model.values())) > 20:
                del model[next(iter(model))]
        else:
            found = cache.get(key)
            assert found == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        assert cache.size_bytes == sum(map(len, model.values())) <= 20


def test_a_value_larger_than_the_cache_evicts_nothing() -> None:
    cache = ByteCache[str, bytes](10, len)
    cache.put("small", b"12345")

    cache.put("large", bytes(11))

    assert cache.get("small") == b"12345"
    assert cache.get("large") is None


async def test_concurrent_callers_share_one_load() -> None:
    cache = ByteCache[str, bytes](10, len)
    gate, loads = asyncio.Event(), 0

    async def load() -> bytes:
        nonlocal loads
        loads += 1
        await gate.wait()
        return b"value"

    asking = [asyncio.create_task(cache.get_or_load("key", load)) for _ in range(5)]
    await turns()
    gate.set()

    assert await asyncio.gather(*asking) == [b"value"] * 5
    assert await cache.get_or_load("key", load) == b"value"
    assert loads == 1


async def test_cancelling_one_caller_leaves_the_load_to_the_others() -> None:
    cache = ByteCache[str, bytes](10, len)
    gate = asyncio.Event()

    async def load() -> bytes:
        await gate.wait()
        return b"value"

    first = asyncio.create_task(cache.get_or_load("key", load))
    second = asyncio.create_task(cache.get_or_load("key", load))
    await turns()
    first.cancel()
    await turns()
    gate.set()

    assert await second == b"value"
    assert first.cancelled()


async def test_a_failed_load_is_not_cached() -> None:
    cache = ByteCache[str, bytes](10, len)

    async def fail() -> bytes:
        raise StoreUnavailable("not now")

    async def load() -> bytes:
        return b"value"

    with pytest.raises(StoreUnavailable):
        await cache.get_or_load("key", fail)
    assert await cache.get_or_load("key", load) == b"value"
