"""Stores whose flush fails once: Linux then forgets what it should have written, so they must not.

A page that could not be written counts as written afterwards. It can be read until it leaves the
page cache, the next flush succeeds without it, and a power cut takes it.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.stores.directory import DirectoryObjects
from storage.stores.sqlite.table import SqliteMetadata
from tests.torture.deployment import ROOT
from tests.torture.shim import Call, Disk, Part
from tests.torture.store_process import VALUE


class Stores:
    """The stores of `store_process`, over a pipe."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.answer()


@contextmanager
def stores_on(disk: Disk) -> Iterator[Stores]:
    """Start the stores; kill them when the block ends, and cut the power."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.torture.store_process", str(disk.data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=disk.env,
    ) as process:
        try:
            stores = Stores(process)
            assert stores.answer() == "ok"
            yield stores
        finally:
            process.kill()
    disk.cut_power(random.Random(0))


def items(disk: Disk) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        table = SqliteMetadata(disk.data / "metadata.db", lambda: "version")
        try:
            return {key: item.value for key, item in await table.list("t/")}
        finally:
            await table.close()

    return asyncio.run(read())


def test_a_power_cut_takes_an_item_that_nobody_flushed(tmp_path: Path, shim: Path) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    with stores_on(disk) as stores:
        assert stores.do("item! t/1") == "ok"
        assert stores.do("item t/2") == "ok"
    assert set(items(disk)) <= {"t/1", "t/2"}
    assert items(disk)["t/1"] == VALUE


def test_an_item_is_not_lost_with_one_before_it_that_a_failed_flush_lost(
    tmp_path: Path, shim: Path
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    with stores_on(disk) as stores:
        assert stores.do("item! t/1") == "ok"
        assert stores.do("item t/2") == "ok"
        disk.fail(Call.SYNC, Part.LOG, loses=True)
        assert stores.do("item! t/3") == "OutcomeUnknown"
        disk.heal()
        assert stores.do("item! t/4") == "ok"
    found = items(disk)
    assert found.get("t/4") == VALUE
    assert found.get("t/2") == VALUE, "a later item is never there without an earlier one"
    assert found["t/1"] == VALUE


def test_an_object_is_not_taken_for_whole_because_its_name_is_there(
    tmp_path: Path, shim: Path
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    with stores_on(disk) as stores:
        disk.fail(Call.SYNC, Part.OBJECTS, every=2, loses=True)
        answers = []
        while disk.failed < 3:
            answers.append(stores.do(f"object f/{len(answers)}"))
        disk.heal()
        assert set(answers) != {"ok"}
        assert [stores.do(f"object f/{n}") for n in range(len(answers))] == ["ok"] * len(answers)

    async def read() -> list[bytes]:
        objects = DirectoryObjects(disk.data / "zone")
        return [await objects.get(f"f/{n}") for n in range(len(answers))]

    assert asyncio.run(read()) == [VALUE] * len(answers)
