"""Dead letters on the command line: why they are there, what they are, sending them again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from riacho import Admin, Producer
from tests.commands import riacho
from tests.gateway import GatewayProcess, start_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path: Path = tmp_path_factory.mktemp("gateway")
    with start_gateway(path, "--log-level", "warning") as process:
        yield process


@pytest.fixture(scope="module")
def url(gateway: GatewayProcess) -> str:
    """A gateway with five letters of `orders` in `dead`, as a Java worker would have written."""
    with Admin(gateway.url) as admin, Producer(gateway.url) as producer:
        admin.create_topic("orders", partitions=2)
        admin.create_topic("dead")
        for n in range(5):
            headers = {
                "__connect.errors.topic": "orders",
                "__connect.errors.partition": "1",
                "__connect.errors.offset": str(n),
                "__connect.errors.connector.name": "c",
                "__connect.errors.stage": "VALUE_CONVERTER",
                "__connect.errors.exception.class.name": f"org.x.{'Data' if n else 'Key'}Exception",
                "__connect.errors.exception.message": "not JSON",
            }
            producer.send("dead", f"v{n}", key=f"k{n}", headers=headers, timestamp_ms=1000 + n)
    return gateway.url


def test_letters_are_listed_shown_and_sent_once(url: str) -> None:
    groups = json.loads(riacho("dlq", "list", "dead", "-o", "json", url=url).stdout)["groups"]
    assert [(each["exception"], each["count"]) for each in groups] == [
        ("org.x.DataException", 4),
        ("org.x.KeyException", 1),
    ]

    shown = riacho("dlq", "show", "dead", "-f", "exception=KeyException", url=url).stdout.decode()
    assert "dead-0 at 0, was orders-1 at 0" in shown
    assert "VALUE_CONVERTER: org.x.KeyException: not JSON" in shown

    tried = riacho("dlq", "redrive", "dead", "--dry-run", "-f", "from=1002", url=url).stdout
    assert b"3 would be sent" in tried
    some = riacho("dlq", "redrive", "dead", "--max", "2", "--rate", "1000", url=url).stdout
    assert b"2 sent, 0 sent before" in some
    rest = json.loads(riacho("dlq", "redrive", "dead", "-o", "json", url=url).stdout)
    assert (rest["sent"], rest["sent_before"]) == (3, 2)
    again = riacho("dlq", "redrive", "dead", url=url).stdout
    assert b"0 sent, 5 sent before" in again

    printed = riacho("consume", "orders", "-e", "-f", "%p %k %v %h\\n", url=url).stdout
    assert printed.decode().splitlines() == [f"1 k{n} v{n} " for n in range(5)]


def test_what_cannot_be_sent_is_said(url: str) -> None:
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic("silent")
        producer.send("silent", "v")

    done = riacho("dlq", "redrive", "silent", url=url, code=1)

    assert b"1 cannot be sent" in done.stdout
    assert b"partition 0 at 0: it does not say where it comes from" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [(["-f", "colour=red"], b"'colour' is none of"), (["-f", "from=noon"], b"is no time")],
)
def test_a_wrong_filter_is_wrong_usage(args: list[str], said: bytes) -> None:
    assert said in riacho("dlq", "redrive", "dead", *args, code=2).stderr
