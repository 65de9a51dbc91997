"""Work on large bodies: off the event loop, a few at a time, counted as they grow."""

import asyncio
import gc
import gzip
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import zstandard

from service.app import create_app
from service.process.limits import heavy_work
from service.process.limits.admission import Admission
from service.process.limits.compression import Inflation
from service.process.limits.heavy_work import (
    INFLATIONS_MAX,
    INLINE_BYTES_MAX,
    STEP_BYTES,
    HeavyWork,
)
from service.settings import Settings
from storage.errors import InvalidRequest, Overloaded, RequestTooLarge

MIB = 1024 * 1024
BYTES_MAX = 32 * MIB
LARGE = INLINE_BYTES_MAX + 1
TIMEOUT_S = 60.0
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}

pytestmark = pytest.mark.anyio
packed = pytest.mark.parametrize("encoding", PACKERS)


def bomb(encoding: str, size_bytes: int = 2 * BYTES_MAX) -> bytes:
    return PACKERS[encoding](bytes(size_bytes))


class Watched(Inflation):
    """Records all inflations, how many ran at once, and in which threads."""

    made: list["Watched"]
    threads: set[int]
    at_once = 0
    at_once_max = 0
    lock = threading.Lock()

    def __init__(self, body: bytes, codec: str, bytes_max: int) -> None:
        super().__init__(body, codec, bytes_max)
        self.made.append(self)

    def step(self, size_bytes: int) -> None:
        cls = type(self)
        with self.lock:
            cls.at_once += 1
            cls.at_once_max = max(cls.at_once, cls.at_once_max)
            cls.threads.add(threading.get_ident())
        try:
            super().step(size_bytes)
        finally:
            with self.lock:
                cls.at_once -= 1


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    fresh = type("Fresh", (Watched,), {"made": [], "threads": set()})
    monkeypatch.setattr(heavy_work, "Inflation", fresh)
    return fresh


async def turns_of(work: Callable[[], Awaitable[None]]) -> int:
    """Return the number of turns of the event loop while `work` was awaited."""
    count = 0
    is_over = False

    def turn() -> None:
        nonlocal count
        count += 1
        if not is_over:
            loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    loop.call_soon(turn)
    await work()
    is_over = True
    return count


@packed
async def test_the_event_loop_is_not_blocked_while_a_gateway_decompresses(
    tmp_path: Path, encoding: str
) -> None:
    app = create_app(Settings(data=tmp_path, metadata="memory://", zones="a=memory://"))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        await client.post("/v1/topics", json={"name": "t"})
        body = bomb(encoding)

        async def send() -> None:
            headers = {"content-encoding": encoding}
            reply = await client.post("/v1/topics/t/records", content=body, headers=headers)
            assert reply.status_code == 413, reply.text

        # A step is a megabyte, and there is at least one turn between two steps.
        assert await turns_of(send) > BYTES_MAX // STEP_BYTES


@packed
async def test_large_bodies_are_decompressed_in_threads_a_few_at_a_time(
    watched: type[Watched], encoding: str
) -> None:
    body, work, admission = bomb(encoding), HeavyWork(), Admission(10**9)
    body *= 1 + INLINE_BYTES_MAX // len(body)

    async def inflate() -> None:
        with admission.hold() as hold, pytest.raises(RequestTooLarge):
            await work.inflate(body, encoding, BYTES_MAX, hold)

    await asyncio.gather(*(inflate() for _ in range(5)))

    assert len(watched.made) == 5
    assert 1 <= watched.at_once_max <= INFLATIONS_MAX
    assert threading.get_ident() not in watched.threads
    assert admission.held_bytes == 0


@packed
async def test_a_small_body_is_decompressed_on_the_loop(
    watched: type[Watched], encoding: str
) -> None:
    body, work, admission = b'{"records":[]}' * 1000, HeavyWork(), Admission(10**9)

    with admission.hold() as hold:
        found = await work.inflate(PACKERS[encoding](body), encoding, BYTES_MAX, hold)
        assert admission.held_bytes == len(body)

    assert found == body
    assert watched.threads == {threading.get_ident()}


@packed
async def test_a_small_body_that_expands_continues_in_a_thread(
    watched: type[Watched], encoding: str
) -> None:
    body, work, admission = bytes(9 * MIB), HeavyWork(), Admission(10**9)

    with admission.hold() as hold:
        found = await work.inflate(PACKERS[encoding](body), encoding, BYTES_MAX, hold)
        assert admission.held_bytes == len(body)

    assert found == body
    assert watched.threads - {threading.get_ident()}


@packed
async def test_decompressed_bytes_are_held_as_they_grow(encoding: str) -> None:
    work, admission = HeavyWork(), Admission(8 * MIB)

    with admission.hold() as other, admission.hold() as hold:
        other.grow_to(1)
        with pytest.raises(Overloaded):
            await work.inflate(bomb(encoding, 16 * MIB), encoding, BYTES_MAX, hold)
        assert admission.held_bytes <= 8 * MIB
    with admission.hold() as hold:
        # A lone request is admitted at any size; others are refused during that time.
        found = await work.inflate(bomb(encoding, 16 * MIB), encoding, BYTES_MAX, hold)
        assert admission.held_bytes == len(found) == 16 * MIB

    assert admission.held_bytes == 0


@packed
async def test_a_cancelled_decompression_stops_soon_and_frees_its_slot(
    watched: type[Watched], encoding: str
) -> None:
    work, admission = HeavyWork(), Admission(10**9)

    async def inflate() -> bytes:
        with admission.hold() as hold:
            return await work.inflate(bomb(encoding, BYTES_MAX), encoding, BYTES_MAX, hold)

    tasks = [asyncio.create_task(inflate()) for _ in range(INFLATIONS_MAX + 1)]
    while not watched.made or not any(each.size_bytes > STEP_BYTES for each in watched.made):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert all(task.cancelled() for task in tasks)
    assert watched.at_once == 0, "a thread went on"
    assert not any(each.is_done for each in watched.made)
    assert admission.held_bytes == 0
    assert await inflate() == bytes(BYTES_MAX)


@packed
async def test_a_truncated_body_is_refused_and_its_memory_released(
    watched: type[Watched], encoding: str
) -> None:
    work, admission = HeavyWork(), Admission(10**9)
    body = bomb(encoding, 9 * MIB)[:-1]
    is_refused = False
    gc.disable()
    try:
        with admission.hold() as hold:
            try:
                await work.inflate(body, encoding, BYTES_MAX, hold)
            except InvalidRequest:  # `pytest.raises` would keep it.
                is_refused = True
        # Without a cycle of references, it is freed when the thread has finished its work.
        kept = weakref.ref(watched.made.pop())
        assert is_refused
        async with asyncio.timeout(TIMEOUT_S):
            while kept() is not None:
                await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_large_bodies_are_converted_one_at_a_time_in_a_thread() -> None:
    work = HeavyWork()
    began, go_on = threading.Event(), threading.Event()
    at_work: list[int] = []

    def convert() -> int:
        at_work.append(threading.get_ident())
        began.set()
        assert go_on.wait(TIMEOUT_S), "the loop did not go on"
        return at_work.pop()

    tasks = [asyncio.create_task(work.convert(LARGE, convert)) for _ in range(3)]
    while not began.is_set():
        await asyncio.sleep(0)
    assert len(at_work) == 1
    # Small bodies do not wait for large ones.
    assert await work.convert(1, lambda: "small") == "small"
    assert await work.convert(LARGE - 1, lambda: "middle") == "middle"
    assert len(at_work) == 1
    go_on.set()

    assert threading.get_ident() not in await asyncio.gather(*tasks)


async def test_the_event_loop_runs_between_conversions_of_middle_size() -> None:
    work = HeavyWork()
    turn = 0
    turns: list[int] = []

    async def count() -> None:
        nonlocal turn
        while len(turns) < 5:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(work.convert(LARGE - 1, lambda: turns.append(turn)) for _ in range(5)))
    await counting

    assert len(set(turns)) == 5, turns


async def test_an_error_of_the_work_is_raised_to_its_caller() -> None:
    def fail() -> None:
        raise InvalidRequest("no")

    for size_bytes in (1, LARGE - 1, LARGE):
        with pytest.raises(InvalidRequest, match="no"):
            await HeavyWork().convert(size_bytes, fail)
