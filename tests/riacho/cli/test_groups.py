"""Groups on the command line: a member that prints, and what is said of groups."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from riacho import Admin, Consumer, Producer
from tests.commands import environment, riacho
from tests.gateway import GatewayProcess, start_gateway

_numbers = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path: Path = tmp_path_factory.mktemp("gateway")
    with start_gateway(path, "--workers", "2", "--log-level", "warning") as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    """A topic with ten records in each of three partitions."""
    with Admin(gateway.url) as admin, Producer(gateway.url) as producer:
        name = admin.create_topic(f"topic-{next(_numbers)}", partitions=3).name
        for n in range(30):
            producer.send(name, str(n), partition=n % 3, timestamp_ms=1000 + n)
    return name


def test_what_was_printed_is_committed(gateway: GatewayProcess, topic: str) -> None:
    group = f"g-{topic}"
    first = riacho("consume", topic, "-g", group, "-n", "12", url=gateway.url).stdout
    second = riacho("consume", topic, "-g", group, "-e", url=gateway.url).stdout
    third = riacho("consume", topic, "-g", group, "-e", url=gateway.url).stdout

    assert len(first.splitlines()) == 12
    assert sorted(map(int, (first + second).split())) == list(range(30))
    assert third == b""
    described = json.loads(riacho("group", "describe", group, "-o", "json", url=gateway.url).stdout)
    assert (described["state"], described["members"]) == ("Empty", [])


def test_an_interrupt_leaves_the_group(gateway: GatewayProcess, topic: str) -> None:
    group = f"g-{topic}"
    process = subprocess.Popen(
        [sys.executable, "-m", "riacho", "consume", topic, "-g", group],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(gateway.url),
    )
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(30)]
    wait_for_lag(gateway, group, 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)

    assert (process.returncode, errors) == (0, b"")
    assert sorted(map(int, printed)) == list(range(30))
    with Admin(gateway.url) as admin:
        assert admin.describe_group(group).members == []


def wait_for_lag(gateway: GatewayProcess, group: str, lag: int) -> None:
    give_up_s = time.monotonic() + 120
    with Admin(gateway.url) as admin:
        while sum(one.lag for one in admin.group_lag(group)) != lag:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)


def test_two_members_print_everything_once(gateway: GatewayProcess, topic: str) -> None:
    group = f"g-{topic}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "riacho", "consume", topic, "-g", group, "-e"],
            stdout=subprocess.PIPE,
            env=environment(gateway.url),
        )
        for _ in range(2)
    ]
    printed = b"".join(process.communicate(timeout=120)[0] for process in processes)

    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(map(int, printed.split())) == list(range(30))


def test_groups_as_tables_and_as_json(gateway: GatewayProcess, topic: str) -> None:
    url, group = gateway.url, f"g-{topic}"
    with Consumer(url, group_id=group, auto_offset_reset="earliest", client_id="me") as consumer:
        consumer.subscribe(topic)
        seen = 0
        while seen < 30:
            seen += len(consumer.poll(5000))
        consumer.commit({(topic, 0): 4, (topic, 1): 10})
        listed = riacho("group", "list", url=url).stdout.decode()
        described = riacho("group", "describe", group, url=url).stdout.decode()
        lags = riacho("group", "lag", group, url=url)
        lag = json.loads(riacho("group", "lag", group, "-o", "json", url=url).stdout)
        refused = riacho("group", "reset", group, "--to", "latest", url=url, code=1).stderr
        kept = riacho("group", "delete", group, url=url, code=1).stderr
    committed = riacho("group", "offsets", group, url=url).stdout.decode()
    groups = json.loads(riacho("group", "list", "-o", "json", url=url).stdout)

    titles = ["GROUP", "KIND", "STATE", "MEMBERS", "PROTOCOLS", "GENERATION", "ASSIGNOR"]
    assert listed.split()[: len(titles)] == titles
    [row] = [line.split() for line in listed.splitlines() if group in line]
    assert row[1:5] == ["native", "Stable", "1", "http"]
    assert f"{topic}/0,{topic}/1,{topic}/2" in described
    rows = [line.split() for line in lags.stdout.decode().splitlines()]
    assert rows[0] == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER"]
    assert [row[1:5] for row in rows[1:]] == [
        ["0", "4", "10", "6"],
        ["1", "10", "10", "0"],
        ["2", "-", "10", "10"],
    ]
    assert rows[1][6].startswith("me-")
    assert b"16 records behind" in lags.stderr
    assert [one["lag"] for one in lag] == [6, 0, 10]
    assert b"NON_EMPTY_GROUP" in refused
    assert b"NON_EMPTY_GROUP" in kept
    # Closing committed all that was returned.
    assert [line.split()[2] for line in committed.splitlines()[1:]] == ["10", "10", "10"]
    assert group in [one["group"] for one in groups]


def test_resets(gateway: GatewayProcess, topic: str) -> None:
    url, group = gateway.url, f"g-{topic}"

    def after(*args: str) -> list[int]:
        done = riacho("group", "reset", group, *args, "-o", "json", url=url)
        return [one["after"] for one in json.loads(done.stdout)]

    assert after("--to", "latest", "--topic", topic) == [10, 10, 10]
    assert after("--to", "shift", "-3") == [7, 7, 7]
    assert after("--to", "shift", "1", "--dry-run") == [8, 8, 8]
    assert after("--to", "offset", "5") == [5, 5, 5]
    assert after("--to", "timestamp", "1010") == [4, 3, 3]
    assert after("--to", "earliest") == [0, 0, 0]
    shown = riacho("group", "reset", group, "--to", "latest", "--dry-run", url=url)
    assert [line.split()[2:] for line in shown.stdout.decode().splitlines()] == [
        ["BEFORE", "AFTER"],
        *[["0", "10"]] * 3,
    ]
    assert b"--dry-run" in shown.stderr
    riacho("group", "delete", group, url=url)
    assert b"GROUP_ID_NOT_FOUND" in riacho("group", "describe", group, url=url, code=1).stderr


@pytest.mark.parametrize(
    "args",
    [
        ["group"],
        ["group", "reset", "g"],
        ["group", "reset", "g", "--to", "nowhere"],
        ["group", "reset", "g", "--to", "offset"],
        ["group", "reset", "g", "--to", "earliest", "5"],
        ["group", "reset", "g", "--to", "shift", "far"],
        ["group", "reset", "g", "--to", "latest", "--dryrun"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "-o", "5"],
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    riacho(*args, code=2)


@pytest.mark.parametrize("name", ["list", "describe", "lag", "offsets", "reset", "delete"])
def test_every_command_has_examples(name: str) -> None:
    assert f"riacho group {name}" in riacho("group", name, "--help").stdout.decode()
