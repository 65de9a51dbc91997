"""Each record is a line of the file, once, whatever dies between the steps of a write."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from service.connect.connectors.api import TopicPartition
from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.file_stream.ledger import LineFile
from service.connect.connectors.guarded_files import HeldFolder
from service.connect.data.errors import TaskFault
from service.connect.data.schema import INT32, STRING, struct
from tests.service.connect.connectors.harness import SinkCrash, SinkTrial, environment

pytestmark = pytest.mark.anyio

T0 = TopicPartition("t", 0)


def trial_of(root: Path) -> SinkTrial:
    plugin = plugin_of("FileStreamSink")
    assert plugin is not None
    return SinkTrial(plugin, {"file": "out.txt"}, environment(root))


def lines(root: Path) -> list[str]:
    return (root / "out.txt").read_text().splitlines()


async def test_values_are_written_as_java_prints_them(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    trial.give("t", 0, "text", None, 1.0, True, {"a": [1, 2]}, b"\xffraw")
    trial.give("u", 0, {"id": 7, "name": "x"}, schema=struct([("id", INT32), ("name", STRING)]))

    await trial.run()

    assert (tmp_path / "out.txt").read_bytes().splitlines() == [
        *(b"text", b"null", b"1.0", b"true", b"{a=[1, 2]}", b"\xffraw"),
        b"Struct{id=7,name=x}",
    ]


@pytest.mark.parametrize("crash", SinkCrash)
async def test_each_record_once_whatever_dies(tmp_path: Path, crash: SinkCrash) -> None:
    trial = trial_of(tmp_path)
    trial.give("t", 0, *map(str, range(50)))
    trial.give("t", 1, *(f"1-{n}" for n in range(50)))
    deaths = 1 if crash is SinkCrash.AFTER_POSITIONS else 3

    for n in range(1, deaths + 1):
        await trial.run(crash=crash, crash_at=n, records_max=5, stop=n % 2 == 0)
    await trial.run(records_max=5)

    written = lines(tmp_path)
    assert [line for line in written if "-" not in line] == [str(n) for n in range(50)]
    assert [line for line in written if "-" in line] == [f"1-{n}" for n in range(50)]


@pytest.mark.parametrize("written_bytes", [0, 1, 5, 6])
def test_a_write_that_was_cut_short_is_undone(tmp_path: Path, written_bytes: int) -> None:
    class Dying(LineFile):
        def _extend(self, folder: HeldFolder, data: bytes) -> None:
            super()._extend(folder, data[:written_bytes])
            raise KeyboardInterrupt

    first = LineFile(environment(tmp_path), "out.txt", "c")
    first.open()
    first.append(b"a\n", {T0: 1})
    dying = Dying(environment(tmp_path), "out.txt", "c")
    assert dying.open() == {T0: 1}
    with pytest.raises(KeyboardInterrupt):
        dying.append(b"bb\ncc\n", {T0: 3})

    after = LineFile(environment(tmp_path), "out.txt", "c")

    complete = written_bytes == 6
    assert after.open() == {T0: 3 if complete else 1}
    assert lines(tmp_path) == (["a", "bb", "cc"] if complete else ["a"])


def test_a_write_that_fails_half_way_is_made_again(tmp_path: Path) -> None:
    class FullDisk(LineFile):
        room = 3

        def _extend(self, folder: HeldFolder, data: bytes) -> None:
            super()._extend(folder, data[: self.room])
            if self.room < len(data):
                raise OSError("no space left on device")

    file = FullDisk(environment(tmp_path), "out.txt", "c")
    file.open()
    with pytest.raises(OSError, match="no space"):
        file.append(b"aa\nbb\n", {T0: 2})
    file.room = 100
    file.append(b"aa\nbb\n", {T0: 2})

    assert lines(tmp_path) == ["aa", "bb"]
    assert file.open() == {T0: 2}


def test_a_task_that_was_replaced_writes_nothing(tmp_path: Path) -> None:
    paused = LineFile(environment(tmp_path), "out.txt", "c")
    paused.open()
    paused.append(b"a\n", {T0: 1})
    replacing = LineFile(environment(tmp_path), "out.txt", "c")
    assert replacing.open() == {T0: 1}

    with pytest.raises(TaskFault, match="taken over"):
        paused.append(b"b\n", {T0: 2})
    replacing.append(b"b\n", {T0: 2})

    assert lines(tmp_path) == ["a", "b"]


def _appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("mine\n")


@pytest.mark.parametrize(
    ("change", "kept"),
    [(os.remove, []), (lambda path: os.truncate(path, 0), []), (_appended, ["a", "mine"])],
    ids=["removed", "emptied", "appended"],
)
async def test_others_may_change_the_file_between_writes(
    tmp_path: Path, change: Callable[[Path], None], kept: list[str]
) -> None:
    trial = trial_of(tmp_path)
    trial.give("t", 0, "a")
    await trial.run(crash=SinkCrash.AFTER_FLUSH, stop=False)

    change(tmp_path / "out.txt")
    trial.give("t", 0, "b")
    await trial.run()
    written = lines(tmp_path)
    # What became of a write that was not known to be complete cannot be told from an empty file.
    assert written in ([*kept, "b"], [*kept, "a", "b"])
    assert written == [*kept, "b"] or not kept


async def test_two_connectors_share_a_file(tmp_path: Path) -> None:
    first, second = trial_of(tmp_path), trial_of(tmp_path)
    second.name = "second"
    for trial in (first, second):
        trial.give("t", 0, *(f"{trial.name} {n}" for n in range(4)))

    await first.run(crash=SinkCrash.AFTER_FLUSH, crash_at=2, records_max=1)
    await second.run(crash=SinkCrash.AFTER_FLUSH, crash_at=3, records_max=1, stop=False)
    await first.run()
    await second.run()

    assert sorted(lines(tmp_path)) == sorted(
        f"{trial.name} {n}" for trial in (first, second) for n in range(4)
    )


async def test_links_are_refused(tmp_path: Path) -> None:
    for name in ("out.txt", "out.txt.riacho", "out.txt.riacho-new", "out.txt.riacho-lock"):
        root = tmp_path / name
        root.mkdir()
        link = root / name
        link.symlink_to(tmp_path / "elsewhere")
        trial = trial_of(root)
        trial.give("t", 0, "a")
        with pytest.raises(TaskFault, match="symbolic link"):
            await trial.run()
    assert not (tmp_path / "elsewhere").exists()


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    trial.config = {"file": "missing/out.txt"}
    trial.give("t", 0, "a")
    with pytest.raises(TaskFault, match="folder that is missing"):
        await trial.run()

    without = trial_of(tmp_path / "nowhere")
    without.give("t", 0, "a")
    with pytest.raises(TaskFault, match="RIACHO_CONNECT_FILES"):
        await without.run()


async def test_offsets_set_by_hand_win_over_those_of_the_file_once(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    trial.give("t", 0, *"abcd")
    trial.give("u", 0, *"wx")
    await trial.run()
    trial.told = {T0: 2, TopicPartition("u", 0): None}
    trial.committed = {T0: 2}
    await trial.run(crash=SinkCrash.AFTER_POSITIONS)
    await trial.run()
    await trial.run()
    assert sorted(lines(tmp_path)) == sorted([*"abcdcd", *"wxwx"])
