"""Connectors reach regular files below one folder, and nothing else by any name."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.connect.connectors import guarded_files
from service.connect.connectors.guarded_files import (
    RefusedFile,
    checked_path,
    held_folder,
    open_below,
)
from tests.service.connect.connectors.harness import environment


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/a.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    return root


def read(root: Path, name: str) -> str:
    with os.fdopen(open_below(environment(root), name, os.O_RDONLY)) as file:
        return file.read()


def test_files_are_named_relative_or_absolute(root: Path) -> None:
    assert read(root, "deep/er/a.txt") == "inside"
    assert read(root, "./deep//er/a.txt") == "inside"
    assert read(root, f"{root}/deep/er/a.txt") == "inside"


def test_the_folder_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert read(tmp_path / "link", f"{tmp_path}/link/deep/er/a.txt") == "inside"
    assert read(tmp_path / "link", f"{root}/deep/er/a.txt") == "inside"


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.txt", "deep/../../secret.txt", "deep/../deep/er/a.txt", ".."),
        *("/etc/passwd", "/proc/self/environ", "{root}/../secret.txt", "{root}x/a.txt"),
        *("", " ", ".", "/", "{root}", "a\0b", "a/" * 40 + "b"),
    ],
)
def test_names_that_lead_outside_are_refused_before_anything_is_opened(
    root: Path, name: str
) -> None:
    name = name.replace("{root}", str(root))

    assert guarded_files.refusal(environment(root), name)
    with pytest.raises(RefusedFile):
        read(root, name)


def test_without_a_folder_the_variable_is_named() -> None:
    assert "RIACHO_CONNECT_FILES" in str(guarded_files.refusal(environment(), "a.txt"))


def test_links_are_not_followed_anywhere(root: Path, tmp_path: Path) -> None:
    (root / "last").symlink_to(tmp_path / "secret.txt")
    (root / "inside").symlink_to(root / "deep/er/a.txt")
    (root / "middle").symlink_to(tmp_path)
    (root / "deep/middle").symlink_to("er")
    (root / "dangling").symlink_to(tmp_path / "made.txt")

    for name in ("last", "inside", "middle/secret.txt", "deep/middle/a.txt", "dangling"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(RefusedFile, match="symbolic link"):
                open_below(environment(root), name, flags)
        with pytest.raises(RefusedFile, match="symbolic link"):
            checked_path(environment(root), name)
    assert not (tmp_path / "made.txt").exists()


def test_a_link_that_is_put_there_after_the_check_is_not_followed(
    root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("outside")

    with held_folder(environment(root), "deep/er/a.txt") as folder:
        (root / "deep").rename(root / "moved")
        (root / "deep").symlink_to(outside)
        (root / "er").symlink_to(outside)
        with os.fdopen(folder.open(os.O_RDONLY)) as file:
            assert file.read() == "inside"
        (root / "moved/er/a.txt").unlink()
        (root / "moved/er/a.txt").symlink_to(outside / "a.txt")
        with pytest.raises((RefusedFile, OSError)):
            folder.open(os.O_RDONLY)


def test_what_is_not_a_regular_file_is_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(root / "socket"))
    for name in ("fifo", "socket", "deep"):
        for flags in (os.O_RDONLY, os.O_WRONLY):
            with pytest.raises(RefusedFile, match="regular file"):
                open_below(environment(root), name, flags)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("name", ["/proc/self/environ", "/proc/1/maps", "/dev/null", "/dev/zero"])
def test_files_of_the_kernel_are_refused_even_below_the_folder(name: str) -> None:
    with pytest.raises((RefusedFile, PermissionError)):
        open_below(environment(Path("/")), name, os.O_RDONLY)


def test_a_file_can_be_replaced_in_its_folder(root: Path) -> None:
    with held_folder(environment(root), "deep/er/a.txt") as folder:
        with os.fdopen(folder.open(os.O_WRONLY | os.O_CREAT, suffix=".new"), "w") as file:
            file.write("after")
        folder.rename(".new")
        folder.sync()

    assert read(root, "deep/er/a.txt") == "after"
    assert checked_path(environment(root), "deep/er/b.txt") == root / "deep/er/b.txt"


def test_a_check_leaves_the_locks_of_this_process_alone(root: Path) -> None:
    """Or others would delete the log of a SQLite database that is open here."""
    path = root / "deep/er/a.txt"
    lock = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)

        checked_path(environment(root), "deep/er/a.txt")

        done = subprocess.run([sys.executable, "-c", lock, path], capture_output=True, check=False)
        assert b"BlockingIOError" in done.stderr
