"""The command line: what is on stdout and stderr, exit codes, pipes and signals."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from riacho import Admin
from tests.commands import environment, riacho, riacho_process
from tests.gateway import GatewayProcess, start_gateway

ROOT = Path(__file__).parents[3]

_numbers = count()


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    with Admin(gateway.url) as admin:
        return admin.create_topic(f"topic-{next(_numbers)}", partitions=3).name


def test_topics_as_tables_and_as_json(gateway: GatewayProcess) -> None:
    url = gateway.url
    riacho("topic", "create", "cli", "-p", "2", "-c", "retention.ms=5000000", url=url)
    listed = riacho("topic", "list", url=url).stdout.decode()
    described = riacho("topic", "describe", "cli", url=url).stdout.decode()
    topics = json.loads(riacho("topic", "list", "-o", "json", url=url).stdout)
    detail = json.loads(riacho("topic", "describe", "cli", "-o", "json", url=url).stdout)
    riacho("topic", "alter", "cli", "-p", "4", "--unset", "retention.ms", url=url)
    altered = json.loads(riacho("topic", "describe", "cli", "-o", "json", url=url).stdout)
    riacho("topic", "delete", "cli", url=url)

    assert listed.splitlines()[0].split() == ["NAME", "PARTITIONS", "REPLICAS", "CLEANUP"]
    assert "retention.ms" in described
    assert "cli" in [entry["name"] for entry in topics]
    assert detail["config"]["retention.ms"] == "5000000"
    assert len(detail["partition_details"]) == 2
    assert (altered["partitions"], altered["config"]["retention.ms"]) == (4, "604800000")
    assert b"there is no topic 'cli'" in riacho("topic", "describe", "cli", url=url, code=1).stderr


def test_creating_twice_fails_unless_told_otherwise(gateway: GatewayProcess, topic: str) -> None:
    failed = riacho("topic", "create", topic, url=gateway.url, code=1)
    riacho("topic", "create", topic, "--if-not-exists", url=gateway.url)

    assert failed.stderr.decode().count("\n") == 1
    assert b"TOPIC_ALREADY_EXISTS" in failed.stderr


def test_a_pipe_of_ten_thousand_lines_comes_out_as_it_went_in(
    gateway: GatewayProcess, topic: str
) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(10_000))

    written = riacho("produce", topic, "-p", "1", stdin=lines, url=gateway.url)
    printed = riacho("consume", topic, "-e", url=gateway.url)

    assert written.stdout == b""
    assert written.stderr == b"10000 records written\n"
    assert printed.stdout == lines


def test_keys_headers_and_nulls(gateway: GatewayProcess, topic: str) -> None:
    riacho(
        "produce", topic, "-k", ":", "-z", "-H", "a=1", "-H", "b=x=y",
        stdin=b"k:v:w\nalone\ngone:\n", url=gateway.url,
    )  # fmt: skip

    printed = riacho("consume", topic, "-e", "-J", url=gateway.url).stdout.splitlines()

    records = {(line["key"], line["value"]): line for line in map(json.loads, printed)}
    assert set(records) == {("k", "v:w"), (None, "alone"), ("gone", None)}
    assert records["k", "v:w"]["headers"] == [
        {"key": "a", "value": "1"},
        {"key": "b", "value": "x=y"},
    ]


def test_where_to_begin_and_how_to_print(gateway: GatewayProcess, topic: str) -> None:
    riacho("produce", topic, "-p", "0", stdin=b"a\nb\nc\n", url=gateway.url)

    def consume(*args: str) -> bytes:
        return riacho("consume", topic, "-p", "0", "-e", *args, url=gateway.url).stdout

    assert consume("-o", "1") == b"b\nc\n"
    assert (
        consume("-o", "-1", "-f", "%t %p %o [%k] %v %s%%\\n") == f"{topic} 0 2 [] c 1%\n".encode()
    )
    assert consume("-o", "end") == b""
    assert consume("-o", "@0", "-n", "2") == b"a\nb\n"
    assert consume("-o", "@2999-01-01T00:00:00Z") == b""
    assert riacho("consume", topic, "-n", "3", url=gateway.url).stdout == b"a\nb\nc\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(gateway: GatewayProcess, topic: str) -> None:
    # More than a pipe holds: else all of it may be written before the reader is gone.
    riacho("produce", topic, stdin=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 5000, url=gateway.url)

    shell = f"{sys.executable} -m riacho consume {topic} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        capture_output=True,
        timeout=120,
        env=environment(gateway.url),
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


def test_an_interrupt_ends_a_tail_quietly(gateway: GatewayProcess, topic: str) -> None:
    riacho("produce", topic, stdin=b"hello\n", url=gateway.url)
    with subprocess.Popen(
        [sys.executable, "-m", "riacho", "consume", topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(gateway.url),
    ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"hello\n"
        tail.send_signal(signal.SIGINT)
        rest, complaints = tail.communicate(timeout=120)

    assert (tail.returncode, rest, complaints) == (0, b"", b"")


def test_an_interrupted_produce_says_what_was_written(gateway: GatewayProcess, topic: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "riacho", "produce", topic],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(gateway.url),
    ) as produce:
        assert produce.stdin is not None
        assert produce.stderr is not None
        produce.stdin.write(b"one\ntwo\n")
        produce.stdin.flush()
        with Admin(gateway.url) as admin:
            while sum(info.high_watermark for info in admin.partitions(topic)) < 2:
                time.sleep(0.02)
        produce.send_signal(signal.SIGINT)
        complaints = produce.stderr.read()
        produce.wait(120)

    assert (produce.returncode, complaints) == (130, b"2 records written\n")


def test_lines_that_fail_are_counted_and_named(gateway: GatewayProcess) -> None:
    name = f"topic-{next(_numbers)}"
    riacho("topic", "create", name, "-c", "max.message.bytes=200", url=gateway.url)

    failed = riacho(
        "produce", name, stdin=b"ok\n" + b"x" * 1000 + b"\nfine\n", url=gateway.url, code=1
    )

    assert b"riacho: line 2: " in failed.stderr
    assert failed.stderr.endswith(b"2 records written, 1 failed\n")


def test_when_the_gateway_dies_the_rest_of_the_lines_is_not_lost_silently(
    tmp_path: Path,
) -> None:
    gateway = start_gateway(tmp_path, "--log-level", "warning")
    riacho("topic", "create", "t", url=gateway.url)
    with subprocess.Popen(
        [sys.executable, "-m", "riacho", "produce", "t", "--timeout", "1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(gateway.url),
    ) as produce:
        assert produce.stdin is not None
        assert produce.stderr is not None
        produce.stdin.write(b"one\n")
        produce.stdin.flush()
        with Admin(gateway.url) as admin:
            while admin.partitions("t")[0].high_watermark < 1:
                time.sleep(0.02)
        gateway.kill()
        produce.stdin.write(b"two\n")
        produce.stdin.flush()
        complaint = produce.stderr.readline()
        produce.stdin.write(b"three\n")
        produce.stdin.close()
        rest = produce.stderr.read()
        produce.wait(120)

    assert produce.returncode == 1
    assert b"riacho: line 2: not written within 1 s" in complaint
    assert rest == b"1 records written, 1 failed; stopped before line 3, which was not sent\n"


@pytest.mark.parametrize(
    "args",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["produce", "t"],
        ["consume", "t"],
        ["cluster"],
    ],
)
def test_without_a_gateway_one_line_says_what_to_do(args: list[str]) -> None:
    failed = riacho(*args, code=1)

    assert failed.stderr.decode().count("\n") == 1
    assert b"is `riacho serve` running?" in failed.stderr
    assert failed.stdout == b""


@pytest.mark.parametrize(
    "args",
    [
        ["consume", "t", "-o", "x"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "-f", "%v", "-J"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "-H", "novalue"],
        ["topic", "create", "t", "-c", "novalue"],
        ["topic", "alter", "t"],
        ["nonsense"],
        ["topic", "create"],
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    riacho(*args, code=2)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["version"], 0),
        (["topic", "list"], 1),
        (["nonsense"], 2),
        # These load obstore, so the process ends in another way.
        (["fsck", "--data", "."], 0),
        (["fsck", "--data", ".", "nope"], 1),
    ],
)
def test_a_process_returns_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)

    done = riacho_process(*args, code=code)

    assert bool(done.stdout) == (code == 0)
    assert done.stderr.startswith({0: b"", 1: b"riacho: ", 2: b"Usage: riacho "}[code])


def test_an_offset_outside_the_log_is_explained(gateway: GatewayProcess, topic: str) -> None:
    failed = riacho("consume", topic, "-p", "0", "-o", "99", url=gateway.url, code=1)

    assert b"offset 99 is outside the log" in failed.stderr


def test_the_cluster_and_the_version(gateway: GatewayProcess) -> None:
    cluster = json.loads(riacho("cluster", "-o", "json", url=gateway.url).stdout)
    version = json.loads(riacho("version", "-o", "json").stdout)

    assert cluster["version"] == version["version"]
    assert riacho("cluster", url=gateway.url).stdout.startswith(b"version ")


@pytest.mark.parametrize(
    "command", ["serve", "topic", "produce", "consume", "doctor", "cluster", "version"]
)
def test_every_command_has_help(command: str) -> None:
    assert f"riacho {command}" in riacho(command, "--help").stdout.decode()


def test_help_and_import_load_nothing_heavy() -> None:
    script = (
        "import sys, riacho\n"
        "from riacho.cli import main\n"
        "heavy = {'httpx', 'pyarrow', 'msgspec', 'rich', 'fastapi', 'service'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_doctor_finds_good_stores_good(tmp_path: Path) -> None:
    args = ["doctor", "--data", str(tmp_path), "--zones", "a,b"]

    table = riacho(*args).stdout.decode()
    findings = json.loads(riacho(*args, "-o", "json").stdout)

    assert table.splitlines()[0].split() == ["STORE", "CHECK", "RESULT", "MS", "DETAIL"]
    assert all(finding["ok"] for finding in findings)
    assert {finding["store"] for finding in findings} == {"metadata", "zone a", "zone b"}


def test_the_doctor_fails_with_what_failed(tmp_path: Path) -> None:
    zones = f"a=file://{tmp_path}/file/below"
    (tmp_path / "file").write_text("not a directory")

    failed = riacho("doctor", "--data", str(tmp_path), "--zones", zones, code=1)

    assert b"FAILED" in failed.stdout
    assert failed.stderr.startswith(b"riacho: 1 of ")


def test_the_doctor_does_not_take_any_url(tmp_path: Path) -> None:
    failed = riacho("doctor", "--data", str(tmp_path), "--zones", "a=ftp://x", code=1)
    riacho("doctor", "--create", code=2)

    assert b"names no object store" in failed.stderr


@pytest.mark.aws
def test_the_doctor_creates_the_table(
    tmp_path: Path, ministack: str, aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack)
    table = f"dynamodb://doctor-{os.getpid()}"
    args = ["doctor", "--data", str(tmp_path), "--metadata", table]

    missing = riacho(*args, code=1)
    created = riacho(*args, "--create")
    again = riacho(*args, "--create")

    assert b"riacho doctor --create" in missing.stdout
    assert created.stderr == b"the table was created\n"
    assert again.stderr == b"the table exists already\n"


def test_serve_says_in_one_line_why_it_cannot(tmp_path: Path) -> None:
    failed = riacho_process(
        "serve", "--no-kafka", "--data", str(tmp_path), "--zones", "a=ftp://x", code=1
    )

    assert failed.stderr.decode().count("\n") == 1
    assert b"names no object store" in failed.stderr
