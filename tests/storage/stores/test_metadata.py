"""The contract of `MetadataStore`, run against every backend and every DynamoDB we can start."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.errors import MetadataConflict
from storage.stores.dynamodb.table import DynamoMetadata
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    VALUE_BYTES_MAX,
    Check,
    Delete,
    MetadataStore,
    Put,
    Versioned,
    pages,
)
from storage.stores.sqlite.table import SqliteMetadata

pytestmark = pytest.mark.anyio

RACING = ["memory", "sqlite", pytest.param("ministack", marks=pytest.mark.aws)]
# moto loses items when transactions race, so only tests without races use it.
BACKENDS = [*RACING, pytest.param("moto", marks=pytest.mark.aws)]
racing = pytest.mark.parametrize("store", RACING, indirect=True)


def new_version() -> str:
    return secrets.token_hex(16)


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    made = await make_store(request, tmp_path)
    yield made
    await made.close()


async def make_store(request: pytest.FixtureRequest, folder: Path) -> MetadataStore:
    match request.param:
        case "memory":
            return MemoryMetadata(new_version)
        case "sqlite":
            return SqliteMetadata(folder / "metadata.sqlite", new_version)
    request.getfixturevalue("aws_environment")
    url: str = request.getfixturevalue(request.param)
    store = DynamoMetadata(f"table-{secrets.token_hex(6)}", new_version, endpoint=url)
    await store.create_table()
    return store


async def put(store: MetadataStore, key: str, value: bytes, expected: str | None = None) -> str:
    return (await store.transact([Put(key, value, expected)]))[key]


async def value_of(store: MetadataStore, key: str) -> bytes | None:
    item = await store.get(key)
    return None if item is None else item.value


async def keys_of(
    store: MetadataStore, prefix: str, *, after: str | None = None, limit: int = 1000
) -> list[str]:
    return [key for key, _ in await store.list(prefix, after=after, limit=limit)]


async def test_an_item_is_read_back_with_its_version(store: MetadataStore) -> None:
    version = await put(store, "topic/orders", b"\x00\xff value")

    assert await store.get("topic/orders") == Versioned(b"\x00\xff value", version)
    assert await store.get("topic/other") is None


async def test_a_value_may_be_empty_or_as_large_as_the_limit(store: MetadataStore) -> None:
    await put(store, "topic/empty", b"")
    await put(store, "topic/large", b"x" * VALUE_BYTES_MAX)

    assert await value_of(store, "topic/empty") == b""
    assert await value_of(store, "topic/large") == b"x" * VALUE_BYTES_MAX


async def test_every_write_makes_a_new_version(store: MetadataStore) -> None:
    first = await put(store, "topic/a", b"same")
    second = await put(store, "topic/a", b"same", first)
    await store.transact([Delete("topic/a", second)])
    third = await put(store, "topic/a", b"same")

    assert len({first, second, third}) == 3


async def test_a_put_for_a_new_key_is_refused_if_the_item_exists(store: MetadataStore) -> None:
    version = await put(store, "topic/a", b"first")

    with pytest.raises(MetadataConflict) as conflict:
        await put(store, "topic/a", b"second")

    assert conflict.value.current["topic/a"] == Versioned(b"first", version)
    assert await store.get("topic/a") == Versioned(b"first", version)


async def test_a_put_is_refused_if_the_item_has_changed(store: MetadataStore) -> None:
    old = await put(store, "topic/a", b"1")
    new = await put(store, "topic/a", b"2", old)

    with pytest.raises(MetadataConflict) as conflict:
        await put(store, "topic/a", b"3", old)

    assert conflict.value.current["topic/a"] == Versioned(b"2", new)


async def test_a_put_for_a_missing_item_is_refused(store: MetadataStore) -> None:
    with pytest.raises(MetadataConflict) as conflict:
        await put(store, "topic/a", b"1", "some-version")

    assert conflict.value.current == {"topic/a": None}
    assert await store.get("topic/a") is None


async def test_a_delete_removes_only_the_version_it_names(store: MetadataStore) -> None:
    old = await put(store, "topic/a", b"1")
    new = await put(store, "topic/a", b"2", old)

    with pytest.raises(MetadataConflict) as conflict:
        await store.transact([Delete("topic/a", old)])
    assert conflict.value.current["topic/a"] == Versioned(b"2", new)

    assert await store.transact([Delete("topic/a", new)]) == {}
    assert await store.get("topic/a") is None
    with pytest.raises(MetadataConflict) as conflict:
        await store.transact([Delete("topic/a", new)])
    assert conflict.value.current == {"topic/a": None}


async def test_a_check_writes_nothing(store: MetadataStore) -> None:
    version = await put(store, "topic/a", b"1")

    assert await store.transact([Check("topic/a", version)]) == {}
    assert await store.transact([Check("topic/b", None)]) == {}
    assert await store.transact([Check("topic/a", version), Check("topic/b", None)]) == {}
    for failing in (Check("topic/a", None), Check("topic/a", "x"), Check("topic/b", "x")):
        with pytest.raises(MetadataConflict) as conflict:
            await store.transact([failing])
        assert conflict.value.current[failing.key] == await store.get(failing.key)

    assert await keys_of(store, "topic/") == ["topic/a"]


async def test_a_transaction_applies_all_of_its_ops(store: MetadataStore) -> None:
    old = await put(store, "topic/old", b"1")
    kept = await put(store, "topic/kept", b"1")

    versions = await store.transact(
        [
            Put("head/1/0", b"a", None),
            Put("head/2/0", b"b", None),
            Delete("topic/old", old),
            Check("topic/kept", kept),
        ]
    )

    assert versions.keys() == {"head/1/0", "head/2/0"}
    assert await store.get("head/1/0") == Versioned(b"a", versions["head/1/0"])
    assert await store.get("head/2/0") == Versioned(b"b", versions["head/2/0"])
    assert await keys_of(store, "topic/") == ["topic/kept"]


@pytest.mark.parametrize("failing", ["put", "delete", "check"])
async def test_a_transaction_applies_nothing_if_one_condition_fails(
    store: MetadataStore, failing: str
) -> None:
    version = await put(store, "topic/a", b"1")
    other = await put(store, "topic/b", b"1")
    op = {
        "put": Put("topic/a", b"2", None),
        "delete": Delete("topic/a", "stale"),
        "check": Check("topic/a", None),
    }[failing]

    with pytest.raises(MetadataConflict) as conflict:
        await store.transact([Put("topic/new", b"x", None), op, Delete("topic/b", other)])

    assert conflict.value.current["topic/a"] == Versioned(b"1", version)
    assert await keys_of(store, "topic/") == ["topic/a", "topic/b"]


async def test_a_transaction_has_limits(store: MetadataStore) -> None:
    most = [Put(f"topic/{number:03}", b"x", None) for number in range(TRANSACT_OPS_MAX)]
    await store.transact(most)
    assert len(await keys_of(store, "topic/")) == TRANSACT_OPS_MAX

    for wrong in (
        [],
        [Put(f"more/{number}", b"x", None) for number in range(TRANSACT_OPS_MAX + 1)],
        [Put("more/a", b"x", None), Check("more/a", None)],
        [Put("more/a", b"x" * (VALUE_BYTES_MAX + 1), None)],
    ):
        with pytest.raises(ValueError, match=r"transaction|limit"):
            await store.transact(wrong)
    assert await keys_of(store, "more/") == []


async def test_get_many_omits_missing_items(store: MetadataStore) -> None:
    keys = [f"offset/billing/{number}" for number in range(250)]
    versions: dict[str, str] = {}
    for start in range(0, len(keys), TRANSACT_OPS_MAX):
        batch = keys[start : start + TRANSACT_OPS_MAX]
        versions |= await store.transact([Put(key, key.encode(), None) for key in batch])

    found = await store.get_many([*keys, "offset/billing/none", "topic/none", keys[0]])

    assert found == {key: Versioned(key.encode(), versions[key]) for key in keys}
    assert await store.get_many([]) == {}


async def test_a_list_returns_one_collection_in_order(store: MetadataStore) -> None:
    for key in ("topic/b", "topic/a", "topic/ab", "topic/a/deeper", "topical/x", "offset/g/t/0"):
        await put(store, key, key.encode())

    assert await keys_of(store, "topic/") == ["topic/a", "topic/ab", "topic/b"]
    assert await keys_of(store, "topic/a") == ["topic/a", "topic/ab"]
    assert await keys_of(store, "topic/a/") == ["topic/a/deeper"]
    assert await keys_of(store, "offset/g/t") == ["offset/g/t/0"]
    assert await keys_of(store, "offset/") == []
    [(key, item)] = await store.list("topical/")
    assert (key, item) == ("topical/x", await store.get("topical/x"))


async def test_a_list_continues_after_a_key(store: MetadataStore) -> None:
    for name in ("a", "b1", "b2", "b3", "c"):
        await put(store, f"topic/{name}", b"")

    assert await keys_of(store, "topic/", limit=2) == ["topic/a", "topic/b1"]
    assert await keys_of(store, "topic/", after="topic/b1", limit=2) == ["topic/b2", "topic/b3"]
    assert await keys_of(store, "topic/", after="topic/b3") == ["topic/c"]
    assert await keys_of(store, "topic/", after="topic/b2-gone") == ["topic/b3", "topic/c"]
    assert await keys_of(store, "topic/b", after="topic/b1") == ["topic/b2", "topic/b3"]
    assert await keys_of(store, "topic/b", after="topic/a") == ["topic/b1", "topic/b2", "topic/b3"]
    assert await keys_of(store, "topic/b", after="topic/c") == []
    assert await keys_of(store, "topic/", after="topic/c") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_pages_hold_every_item_once_and_in_order(store: MetadataStore, limit: int) -> None:
    expected = [f"topic/{name}" for name in "abcd"]
    await store.transact([Put(key, b"v", None) for key in [*expected, "zone/e"]])

    found = [page async for page in pages(store, "topic/", limit)]

    assert [key for page in found for key, _ in page] == expected
    assert max(map(len, found)) <= limit


async def test_list_and_get_many_return_more_than_one_answer_can_hold(store: MetadataStore) -> None:
    # DynamoDB ends a page of a query after 1 MB.
    keys = [f"topic/{number:02}" for number in range(8)]
    for key in keys:
        await put(store, key, key.encode() * 40_000)

    listed = await store.list("topic/")

    assert [key for key, _ in listed] == keys
    assert all(item.value == key.encode() * 40_000 for key, item in listed)
    assert await keys_of(store, "topic/", limit=5) == keys[:5]
    assert (await store.get_many(keys)).keys() == set(keys)


async def test_keys_may_be_any_text_and_sort_as_utf8(store: MetadataStore) -> None:
    # The last two sort the other way round in UTF-16.
    names = ["A b", "a:b?c#d%20", "zebra", "é", "日本", "\uffee", "\U0001d11e"]
    for name in reversed(names):
        await put(store, f"topic/{name}", name.encode())

    assert await keys_of(store, "topic/") == [f"topic/{name}" for name in names]
    assert await keys_of(store, "topic/", after="topic/é") == [f"topic/{n}" for n in names[4:]]
    for name in names:
        assert await value_of(store, f"topic/{name}") == name.encode()


@racing
async def test_concurrent_increments_of_a_counter_are_all_applied(store: MetadataStore) -> None:
    await put(store, "head/t/0", b"0")

    async def count(times: int) -> None:
        item = await store.get("head/t/0")
        while times:
            assert item is not None
            try:
                await put(store, "head/t/0", b"%d" % (int(item.value) + 1), item.version)
                times -= 1
                item = await store.get("head/t/0")
            except MetadataConflict as conflict:
                item = conflict.current["head/t/0"]

    await asyncio.gather(*(count(10) for _ in range(8)))

    assert await value_of(store, "head/t/0") == b"80"


@racing
async def test_racing_transactions_are_all_or_nothing(store: MetadataStore) -> None:
    await store.transact([Put("head/t/0", b"0", None), Put("head/t/1", b"0", None)])

    async def add(writer: int) -> None:
        while True:
            heads = await store.get_many(["head/t/0", "head/t/1"])
            bumped = [
                Put(key, b"%d" % (int(item.value) + 1), item.version) for key, item in heads.items()
            ]
            try:
                await store.transact([*bumped, Put(f"done/{writer}", b"", None)])
            except MetadataConflict:
                continue
            return

    await asyncio.gather(*map(add, range(8)))

    heads = await store.get_many(["head/t/0", "head/t/1"])
    assert {item.value for item in heads.values()} == {b"8"}
    assert len(await keys_of(store, "done/")) == 8


@racing
async def test_exactly_one_of_many_concurrent_creators_wins(store: MetadataStore) -> None:
    async def create(writer: int) -> bool:
        try:
            await put(store, "lease/controller", b"%d" % writer)
        except MetadataConflict:
            return False
        return True

    assert sum(await asyncio.gather(*map(create, range(16)))) == 1


async def test_a_cancelled_call_does_not_disturb_others(store: MetadataStore) -> None:
    async def write(number: int) -> str:
        return await put(store, f"topic/{number}", b"x")

    tasks = [asyncio.create_task(write(number)) for number in range(6)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    for number in (1, 3, 5):
        assert await store.get(f"topic/{number}") == Versioned(b"x", tasks[number].result())
    await put(store, "topic/after", b"still works")
