"""The contract of `ObjectStore`, run against every backend and every S3 we can start."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from storage.errors import Corrupt, ObjectExists, ObjectMissing
from storage.stores.directory import DirectoryObjects
from storage.stores.memory import MemoryObjects
from storage.stores.objects import ObjectInfo, ObjectStore
from storage.stores.s3 import ONE_REQUEST_BYTES_MAX, S3Objects
from tests.storage.helpers.servers import make_bucket

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024

BACKENDS = [
    "memory",
    "directory",
    "directory without nameless files",
    pytest.param("ministack", marks=pytest.mark.aws),
    pytest.param("moto", marks=pytest.mark.aws),
    pytest.param("seaweed", marks=pytest.mark.aws),
]


@pytest.fixture(scope="session")
def bucket_of() -> dict[str, str]:
    """One bucket per server, because SeaweedFS creates them slowly; each test has a prefix."""
    return {}


@pytest.fixture(params=BACKENDS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, bucket_of: dict[str, str]
) -> AsyncIterator[ObjectStore]:
    made = make_store(request, tmp_path, bucket_of)
    yield made
    await made.close()


def make_store(
    request: pytest.FixtureRequest, folder: Path, bucket_of: dict[str, str]
) -> ObjectStore:
    match request.param:
        case "memory":
            return MemoryObjects()
        case "directory":
            return DirectoryObjects(folder)
        case "directory without nameless files":
            return DirectoryObjects(folder, anonymous=False)
    request.getfixturevalue("aws_environment")
    url: str = request.getfixturevalue(request.param)
    if url not in bucket_of:
        bucket_of[url] = f"objects-{secrets.token_hex(4)}"
        make_bucket(url, bucket_of[url])
    return S3Objects(bucket_of[url], f"test/{secrets.token_hex(8)}", endpoint=url)


async def listed(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    batches = [batch async for batch in store.list(prefix)]
    return sorted((info for batch in batches for info in batch), key=lambda info: info.key)


async def test_a_body_put_in_pieces_is_read_back_whole(store: ObjectStore) -> None:
    await store.put("a/b.seg", [b"he", bytearray(b"ll"), memoryview(b"xox")[1:2], b""])

    assert await store.get("a/b.seg") == b"hello"


async def test_a_body_can_be_large_and_have_thousands_of_pieces(store: ObjectStore) -> None:
    body = random.Random(1).randbytes(3_000_000)

    await store.put("large", [body[at : at + 1000] for at in range(0, len(body), 1000)])

    assert await store.get("large") == body


async def test_a_put_never_overwrites(store: ObjectStore) -> None:
    await store.put("a", [b"first"])

    with pytest.raises(ObjectExists):
        await store.put("a", [b"other"])

    assert await store.get("a") == b"first"


async def test_the_same_put_succeeds_twice(store: ObjectStore) -> None:
    await store.put("a", [b"sa", b"me"])
    await store.put("a", [b"s", b"ame"])

    assert await store.get("a") == b"same"


async def test_a_put_of_a_longer_or_shorter_body_is_refused(store: ObjectStore) -> None:
    await store.put("a", [b"body"])

    for other in (b"bod", b"body2", b""):
        with pytest.raises(ObjectExists):
            await store.put("a", [other])


async def test_exactly_one_of_many_racing_writers_wins(store: ObjectStore) -> None:
    async def write(writer: int) -> int | None:
        try:
            await store.put("raced", [b"writer %d" % writer])
        except ObjectExists:
            return None
        return writer

    winners = [won for won in await asyncio.gather(*map(write, range(8))) if won is not None]

    assert len(winners) == 1
    assert await store.get("raced") == b"writer %d" % winners[0]


async def test_concurrent_writers_of_the_same_bytes_all_succeed(store: ObjectStore) -> None:
    await asyncio.gather(*(store.put("raced", [b"same"]) for _ in range(8)))

    assert await store.get("raced") == b"same"


async def test_a_read_that_begins_after_a_put_sees_it(store: ObjectStore) -> None:
    for number in range(5):
        with pytest.raises(ObjectMissing):
            await store.get(f"n/{number}")
        await store.put(f"n/{number}", [b"%d" % number])
        assert await store.get(f"n/{number}") == b"%d" % number


async def test_a_missing_object_differs_from_an_empty_one(store: ObjectStore) -> None:
    await store.put("empty", [])

    assert await store.get("empty") == b""
    assert await store.get_ranges("empty", [(0, 0)]) == [b""]
    with pytest.raises(ObjectMissing):
        await store.get("absent")
    with pytest.raises(ObjectMissing):
        await store.get_ranges("absent", [(0, 0)])
    with pytest.raises(ObjectMissing):
        await store.get_ranges("absent", [(0, 1)])


async def test_size_returns_the_size_of_an_object(store: ObjectStore) -> None:
    await store.put("a/five", [b"he", b"llo"])
    await store.put("a/empty", [])

    assert await store.size("a/five") == 5
    assert await store.size("a/empty") == 0
    for absent in ("absent", "a"):
        with pytest.raises(ObjectMissing):
            await store.size(absent)


async def test_ranges_are_returned_in_the_requested_order(store: ObjectStore) -> None:
    body = random.Random(2).randbytes(2_000_000)
    await store.put("a", [body])
    ranges = [(1_999_990, 2_000_000), (0, 10), (5, 5), (4, 900_000), (10, 20), (0, 10)]

    found = await store.get_ranges("a", ranges)

    assert found == [body[start:end] for start, end in ranges]
    assert await store.get_ranges("a", []) == []


@pytest.mark.parametrize("ranges", [[(0, 6)], [(5, 6)], [(100, 200)], [(0, 2), (100, 200)]])
async def test_a_range_beyond_the_end_is_corruption(
    store: ObjectStore, ranges: list[tuple[int, int]]
) -> None:
    await store.put("short", [b"hello"])

    with pytest.raises(Corrupt) as caught:
        await store.get_ranges("short", ranges)

    assert not isinstance(caught.value, ObjectMissing)


async def test_a_deleted_object_is_missing_and_can_be_deleted_again(store: ObjectStore) -> None:
    await store.put("a/1", [b"x"])
    await store.put("a/2", [b"x"])

    await store.delete(["a/1", "never/there"])
    await store.delete(["a/1"])
    await store.delete([])

    with pytest.raises(ObjectMissing):
        await store.get("a/1")
    assert [info.key for info in await listed(store, "")] == ["a/2"]


async def test_a_deleted_key_can_be_put_again(store: ObjectStore) -> None:
    await store.put("a", [b"old"])
    await store.delete(["a"])
    await store.put("a", [b"new"])

    assert await store.get("a") == b"new"


async def test_a_list_returns_the_objects_below_the_prefix(store: ObjectStore) -> None:
    for key in ("ab/1", "ab/12", "ab/2/deep", "abc/1", "b/1"):
        await store.put(key, [key.encode()])

    assert [info.key for info in await listed(store, "ab/1")] == ["ab/1", "ab/12"]
    assert [info.key for info in await listed(store, "ab/")] == ["ab/1", "ab/12", "ab/2/deep"]
    assert [info.key for info in await listed(store, "ab")] == [
        *("ab/1", "ab/12", "ab/2/deep", "abc/1")
    ]
    assert len(await listed(store, "")) == 5
    assert await listed(store, "nothing/here") == []
    [info] = await listed(store, "ab/2/")
    assert info.size_bytes == len("ab/2/deep")


async def test_a_list_returns_more_than_one_page(store: ObjectStore) -> None:
    keys = [f"page/{number:04}" for number in range(1005)]
    for start in range(0, len(keys), 50):
        await asyncio.gather(*(store.put(key, [b""]) for key in keys[start : start + 50]))

    assert [info.key for info in await listed(store, "page/")] == keys

    await store.delete(keys)
    assert await listed(store, "page/") == []


async def test_keys_keep_their_characters(store: ObjectStore) -> None:
    key = "7f/topic=a+b/~x %20 #?&_-.seg"
    await store.put(key, [b"odd"])

    assert await store.get(key) == b"odd"
    assert [info.key for info in await listed(store, "7f/")] == [key]
    await store.delete([key])
    assert await listed(store, "") == []


@pytest.mark.parametrize("store", BACKENDS[1:], indirect=True)  # Memory accepts any key.
@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "é", "a\0b"])
async def test_a_key_that_some_backend_cannot_store_raises_value_error(
    store: ObjectStore, key: str
) -> None:
    with pytest.raises(ValueError, match="is not a key"):
        await store.put(key, [b"x"])
    with pytest.raises(ValueError, match="is not a key"):
        await store.get(key)


async def test_a_cancelled_put_leaves_the_whole_object_or_none(store: ObjectStore) -> None:
    body = random.Random(3).randbytes(500_000)
    put = asyncio.create_task(store.put("abandoned", [body]))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)

    with suppress(ObjectMissing):
        assert await store.get("abandoned") == body
    await store.put("abandoned", [body])
    assert await store.get("abandoned") == body


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for files to put; the directory backend has `tmp_path` for itself."""
    return tmp_path_factory.mktemp("files")


def file_of(path: Path, *parts: bytes) -> Path:
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
    return path


async def same(store: ObjectStore, key: str, path: Path) -> bool:
    """Whether object and file are equal, without reading both into memory."""
    size_bytes = path.stat().st_size
    if await store.size(key) != size_bytes:
        return False
    with path.open("rb") as file:
        for start in range(0, size_bytes, MIB * 8):
            span = (start, min(size_bytes, start + MIB * 8))
            if await store.get_ranges(key, [span]) != [file.read(MIB * 8)]:
                return False
    return True


async def test_a_file_is_put_like_a_body_in_memory(store: ObjectStore, folder: Path) -> None:
    path = file_of(folder / "some", random.Random(4).randbytes(2_500_000))
    empty = file_of(folder / "empty")

    await store.put_file("files/some", path)
    await store.put_file("files/empty", empty)
    await store.put_file("files/some", path)

    assert await store.get("files/some") == path.read_bytes()
    assert await store.get("files/empty") == b""
    assert path.exists()
    await store.put("files/some", [path.read_bytes()])
    for other in (b"", path.read_bytes()[:-1], path.read_bytes() + b"x"):
        with pytest.raises(ObjectExists):
            await store.put_file("files/some", file_of(folder / "other", other))
    assert await store.get("files/some") == path.read_bytes()


async def test_changing_a_file_after_its_put_does_not_change_the_object(
    store: ObjectStore, folder: Path
) -> None:
    path = file_of(folder / "some", b"first")
    await store.put_file("a", path)
    path.write_bytes(b"later")
    path.unlink()

    assert await store.get("a") == b"first"


async def test_putting_a_missing_file_raises_file_not_found(
    store: ObjectStore, folder: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        await store.put_file("a", folder / "absent")

    with pytest.raises(ObjectMissing):
        await store.get("a")


async def test_a_file_larger_than_one_request_is_put_whole_and_once(
    store: ObjectStore, folder: Path
) -> None:
    chance = random.Random(5)
    part = chance.randbytes(9 * MIB)
    large = file_of(folder / "large", *[part] * 8, b"end")
    assert large.stat().st_size > ONE_REQUEST_BYTES_MAX

    await store.put_file("large", large)

    assert await same(store, "large", large)
    await store.put_file("large", large)
    other = file_of(folder / "other", *[part] * 8, b"eNd")
    with pytest.raises(ObjectExists):
        await store.put_file("large", other)
    with pytest.raises(ObjectExists):
        await store.put_file("large", file_of(folder / "longer", *[part] * 8, b"ends"))
    assert await same(store, "large", large)
    await store.delete(["large"])


async def test_a_cancelled_put_of_a_file_leaves_the_whole_object_or_none(
    store: ObjectStore, folder: Path
) -> None:
    path = file_of(folder / "some", random.Random(6).randbytes(3_000_000))
    put = asyncio.create_task(store.put_file("abandoned", path))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)

    with suppress(ObjectMissing):
        assert await same(store, "abandoned", path)
    await store.put_file("abandoned", path)
    assert await same(store, "abandoned", path)
