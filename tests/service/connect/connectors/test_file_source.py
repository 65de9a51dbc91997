"""The lines of a file are in the log once each, whatever dies, and whatever becomes of the file."""

from pathlib import Path

import pytest

from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.file_stream import source as file_source
from service.connect.data.errors import ConfigFault, DataFault, TaskFault
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial, environment

pytestmark = pytest.mark.anyio


def trial_of(root: Path, name: str = "in.txt", **config: str) -> SourceTrial:
    plugin = plugin_of("org.apache.kafka.connect.file.FileStreamSourceConnector")
    assert plugin is not None
    keys = {key.replace("_", "."): text for key, text in config.items()}
    return SourceTrial(plugin, {"file": name, "topic": "lines", **keys}, environment(root))


async def polled(trial: SourceTrial, polls: int = 3) -> list[object]:
    """Return the values after so many more polls."""
    before = trial.polls
    await trial.run(lambda: trial.polls >= before + polls)
    return trial.values


async def test_lines_with_any_ending(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("a\nb\r\n\nd\re\r\r\nzwölf €\n".encode())
    trial = trial_of(tmp_path)

    assert await polled(trial) == ["a", "b", "", "d", "e", "", "zwölf €"]
    assert {record.topic for record in trial.records} == {"lines"}
    [offset] = await trial.offsets.read([{"filename": "in.txt"}])
    assert offset is not None
    assert offset["position"] == (tmp_path / "in.txt").stat().st_size


async def test_a_line_without_an_end_waits(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    trial = trial_of(tmp_path)
    assert await polled(trial) == []

    path.write_bytes(b"a\nhalf")
    assert await polled(trial) == ["a"]
    path.write_bytes(b"a\nhalf and half\r")
    assert await polled(trial) == ["a"]
    path.write_bytes(b"a\nhalf and half\r\nc\n")
    assert await polled(trial) == ["a", "half and half", "c"]


@pytest.mark.parametrize("crash", SourceCrash)
async def test_each_line_once_whatever_dies(tmp_path: Path, crash: SourceCrash) -> None:
    lines = [f"line {n}" + "\r" * (n % 2) for n in range(500)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", newline="")
    trial = trial_of(tmp_path, batch_size="7")

    for n in range(1, 6):
        await trial.run(lambda: False, crash=crash, crash_at=n, stop=False)
    await trial.run(lambda: len(trial.records) >= 500)

    assert trial.values == [line.rstrip("\r") for line in lines]


async def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    trial = trial_of(tmp_path)
    await polled(trial)

    path.write_text("3\n")
    assert (await polled(trial))[2:] == ["3"]
    path.unlink()
    assert (await polled(trial))[3:] == []
    path.write_text("four\nand more than there was\n")
    assert (await polled(trial))[3:] == ["four", "and more than there was"]


async def test_a_file_that_moved_to_another_disk_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    trial = trial_of(tmp_path)
    await polled(trial)

    (tmp_path / "other").mkdir()
    (tmp_path / "other/in.txt").write_text("one\ntwo\nthree\n")
    trial.environment = environment(tmp_path / "other")

    assert await polled(trial) == ["one", "two", "three"]


async def test_bytes_that_are_not_text_are_reported_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\n\xff\xfe\nb\n")
    trial = trial_of(tmp_path)

    assert await polled(trial) == ["a", "b"]
    [(record, fault)] = trial.reports.given_up
    assert record.value == b"\xff\xfe"
    assert "not UTF-8" in str(fault)
    assert "ends at byte 5" in str(fault)

    assert await polled(trial_of(tmp_path, encoding="bytes")) == [b"a", b"\xff\xfe", b"b"]
    assert await polled(trial_of(tmp_path, encoding="iso-8859-1")) == ["a", "ÿþ", "b"]

    strict = trial_of(tmp_path)
    strict.reports.tolerates = False
    with pytest.raises(DataFault):
        await polled(strict)


async def test_a_line_that_is_too_long_is_given_up_in_bounded_memory(tmp_path: Path) -> None:
    long = file_source.READ_BYTES * 2 + 17
    (tmp_path / "in.txt").write_bytes(b"a\n" + b"x" * long + b"\r\nb\n")
    trial = trial_of(tmp_path)

    assert await polled(trial, 6) == ["a", "b"]
    [(record, fault)] = trial.reports.given_up
    assert len(record.value) == file_source.HEAD_BYTES_MAX
    assert "more than" in str(fault)


async def test_a_position_can_be_set_by_hand(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    trial = trial_of(tmp_path)

    trial.offsets.store({"filename": "in.txt"}, {"position": 4})
    assert await polled(trial) == ["two"]
    trial.offsets.store({"filename": "in.txt"}, {"position": "four"})
    with pytest.raises(TaskFault, match="'four'"):
        await polled(trial)


async def test_files_outside_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")

    with pytest.raises(TaskFault, match="symbolic link"):
        await polled(trial_of(tmp_path, "link"))
    with pytest.raises(ConfigFault, match="RIACHO_CONNECT_FILES"):
        await polled(trial_of(tmp_path, "/etc/passwd"))
