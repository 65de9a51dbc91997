"""Real databases for tests: PostgreSQL and MariaDB of Debian's packages, each started once.

The fixtures `postgresql` and `mariadb` of `conftest.py` are one server each for the whole session,
in a temporary folder, on a free port of the loopback interface. A test takes a database of its own
from `fresh()`, so tests see nothing of each other; what belongs to a whole server (replication
slots, roles) is dropped by the test that made it.

PostgreSQL refuses to run as root: then it runs as its own user, or as `nobody`. It decodes
(`wal_level=logical`), so that the tests of change data capture can share it.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.storage.helpers.servers import free_ports

USER: Final = "riacho"
PASSWORD: Final = "s3cret & more"
"""With characters that a URL must escape."""

START_S_MAX: Final = 120
POLL_S: Final = 0.05

_PATH: Final = os.pathsep.join(
    [
        *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)),
        os.environ.get("PATH", ""),
        *("/usr/sbin", "/usr/local/sbin"),
    ]
)


@dataclass(frozen=True)
class Database:
    """A database that nobody else uses, and how to reach it."""

    kind: str
    """What JDBC calls it: postgresql or mariadb."""
    port: int
    name: str
    host: str = "127.0.0.1"
    user: str = USER
    password: str = PASSWORD

    @property
    def jdbc(self) -> str:
        """Without user and password, as `connection.url` has it."""
        return f"jdbc:{self.kind}://{self.host}:{self.port}/{self.name}"


@dataclass(frozen=True)
class Server:
    kind: str
    port: int
    programs: Sequence[str]
    """The client that `run` starts, with its arguments."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self) -> Database:
        """Return a new, empty database."""
        name = f"fresh_{next(self.numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return Database(self.kind, self.port, name)

    def run(self, sql: str) -> None:
        """Execute statements as the superuser, through the client program."""
        done = subprocess.run(
            [*self.programs, sql],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def start_postgresql() -> Iterator[Server]:
    """A PostgreSQL that decodes its log; the test is skipped where it is not installed."""
    initdb, server, client = _programs("PostgreSQL", "initdb", "postgres", "psql")
    [port] = free_ports(1)
    with _folder("postgres") as (folder, owner):
        secret = folder / "password"
        secret.write_text(PASSWORD)
        data = folder / "data"
        _call(
            [
                *(initdb, "-D", str(data), "-U", USER, "--pwfile", str(secret)),
                *("-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            folder,
            owner,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "wal_level": "logical",
            "max_replication_slots": "20",
            "max_wal_senders": "20",
        }
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        address = ["-h", "127.0.0.1", "-p", str(port), "-U", USER]
        run = [client, *address, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c"]
        command = [server, "-D", str(data), "-p", str(port), *options]
        with _running(command, folder, owner, Server("postgresql", port, run)) as started:
            yield started


@contextlib.contextmanager
def start_mariadb() -> Iterator[Server]:
    """A MariaDB; the test is skipped where it is not installed."""
    install, server, client = _programs("MariaDB", "mariadb-install-db", "mariadbd", "mariadb")
    [port] = free_ports(1)
    with _folder("mariadb") as (folder, owner):
        data = folder / "data"
        common = ["--no-defaults", f"--datadir={data}"]
        _call(
            [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            folder,
            owner,
        )
        first = folder / "first.sql"
        first.write_text(
            f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        command = [
            *(server, *common, f"--port={port}", "--bind-address=127.0.0.1"),
            *(f"--socket={folder}/socket", f"--pid-file={folder}/pid", f"--init-file={first}"),
            *("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"),
            "--character-set-server=utf8mb4",
        ]
        address = ["--protocol=tcp", "-h127.0.0.1", f"-P{port}", f"-u{USER}", f"-p{PASSWORD}"]
        run = [client, "--no-defaults", *address, "-e"]
        with _running(command, folder, owner, Server("mariadb", port, run)) as started:
            yield started


def _programs(name: str, *programs: str) -> list[str]:
    paths = [shutil.which(program, path=_PATH) for program in programs]
    found = [path for path in paths if path is not None]
    if len(found) < len(paths):
        pytest.skip(f"there is no {name} here: install its Debian package")
    return found


@contextlib.contextmanager
def _folder(prefix: str) -> Iterator[tuple[Path, str | None]]:
    """A new folder, and the user that owns it and that servers run as; None: this one."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() != 0:
            yield folder, None
            return
        users = {each.pw_name for each in pwd.getpwall()}
        owner = next(each for each in ("postgres", "nobody") if each in users)
        shutil.chown(folder, owner)
        yield folder, owner


def _call(command: Sequence[str], folder: Path, owner: str | None) -> None:
    done = subprocess.run(
        command, cwd=folder, user=owner, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{command[0]} fails here: {(done.stdout + done.stderr)[-500:]}")


@contextlib.contextmanager
def _running(
    command: Sequence[str], folder: Path, owner: str | None, server: Server
) -> Iterator[Server]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, user=owner, stdout=output, stderr=output)
        try:
            _await(process, server, log)
            yield server
        finally:
            # Killed, PostgreSQL would leave shared memory and children behind.
            stop = signal.SIGQUIT if server.kind == "postgresql" else signal.SIGKILL
            process.send_signal(stop)
            process.wait()


def _await(process: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    for _ in range(int(START_S_MAX / POLL_S)):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with contextlib.suppress(AssertionError):
            return server.run("SELECT 1")
        time.sleep(POLL_S)
    raise AssertionError(f"{server.kind} did not answer: {log.read_text(errors='replace')[-2000:]}")
