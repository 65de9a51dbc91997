"""When a blocking call runs on the event loop: if small, alone and recently quick."""

import threading
from pathlib import Path

import pytest

from storage.errors import MetadataConflict
from storage.stores.directory import HERE_BYTES_MAX, DirectoryObjects
from storage.stores.metadata import Put
from storage.stores.pace import QUICK_S, Pace
from storage.stores.sqlite.table import SqliteMetadata

pytestmark = pytest.mark.anyio


def trusted() -> Pace:
    pace = Pace()
    for _ in range(50):
        pace.took(QUICK_S / 10)
    return pace


def test_a_new_pace_is_not_quick() -> None:
    assert not Pace().is_quick


def test_one_slow_call_ends_quickness_and_many_quick_ones_restore_it() -> None:
    pace = trusted()
    assert pace.is_quick

    pace.took(1.0)
    assert not pace.is_quick
    pace.took(QUICK_S / 10)
    assert not pace.is_quick

    for _ in range(50):
        pace.took(QUICK_S / 10)
    assert pace.is_quick


def threads_seen(monkeypatch: pytest.MonkeyPatch, store: object, name: str) -> list[str]:
    """Return a list that receives the thread name of every call of `store`'s method."""
    seen: list[str] = []
    method = getattr(store, name)

    def spy(*args: object) -> object:
        seen.append(threading.current_thread().name)
        return method(*args)

    monkeypatch.setattr(store, name, spy)
    return seen


async def test_a_lone_small_put_runs_on_the_loop_and_a_large_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryObjects(tmp_path)
    seen = threads_seen(monkeypatch, store, "_put")

    await store.put("first", [b"x"])
    store._pace = trusted()
    await store.put("small", [b"x" * HERE_BYTES_MAX])
    store._pace = trusted()
    await store.put("large", [b"x" * HERE_BYTES_MAX, b"x"])

    assert [name == "MainThread" for name in seen] == [False, True, False]
    assert await store.get("small") == b"x" * HERE_BYTES_MAX
    await store.close()


async def test_a_lone_commit_runs_on_the_loop_with_the_same_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter("abcdef")
    store = SqliteMetadata(tmp_path / "m.db", lambda: next(versions))
    store._writer._pace = trusted()
    seen = threads_seen(monkeypatch, store._writer, "_commit")

    await store.transact([Put("topic/a", b"1", None)])
    store._writer._pace = trusted()
    with pytest.raises(MetadataConflict) as refused:
        await store.transact([Put("topic/a", b"2", "z"), Put("topic/b", b"2", None)])

    assert seen == ["MainThread", "MainThread"]
    assert refused.value.current["topic/a"].value == b"1"
    assert await store.get("topic/b") is None
    await store.close()


async def test_a_commit_waits_in_a_thread_while_another_process_writes(tmp_path: Path) -> None:
    versions = iter("abcdef")
    mine = SqliteMetadata(tmp_path / "m.db", lambda: next(versions))
    other = SqliteMetadata(tmp_path / "m.db", lambda: next(versions))
    mine._writer._pace = trusted()

    other._writer._db.execute("BEGIN IMMEDIATE")
    threading.Timer(0.05, lambda: other._writer._db.execute("COMMIT")).start()
    written = await mine.transact([Put("topic/a", b"1", None)])

    assert set(written) == {"topic/a"}
    await mine.close()
    await other.close()
