"""`riacho sql` against a real gateway, by one Spark that all tests share."""

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from riacho import Admin, Consumer, Producer
from riacho.cli.main import cli
from riacho.records import Record
from tests.gateway import GatewayProcess

if TYPE_CHECKING:
    from click.testing import Result

# Every command finds the shared session and uses it, instead of one of its own.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

_numbers = itertools.count()


class Shell:
    def __init__(self, url: str) -> None:
        self.url = url

    def sql(self, *args: str) -> "Result":
        found = CliRunner().invoke(cli, ["sql", "--url", self.url, *args])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    def rows(self, *args: str) -> list[Any]:
        found = self.sql("-q", "-o", "ndjson", *args)
        assert found.exit_code == 0, found.stderr
        return [json.loads(line) for line in found.stdout.splitlines()]

    def topic(self, *values: object, partitions: int = 1, suffix: str = "") -> str:
        """Return a topic with these values, each with its number as the key and the time."""
        name = f"sql{next(_numbers)}{suffix}"
        with Admin(self.url) as admin:
            admin.create_topic(name, partitions=partitions)
        with Producer(self.url) as producer:
            for number, value in enumerate(values):
                text = value if isinstance(value, str) else json.dumps(value)
                producer.send(name, text, key=str(number), timestamp_ms=1000 * (number + 1))
        return name

    def read(self, topic: str) -> list[Record]:
        with Admin(self.url) as admin, Consumer(self.url) as consumer:
            [info] = admin.partitions(topic)
            consumer.assign([(topic, 0)])
            consumer.seek(topic, 0, 0)
            records: list[Record] = []
            while len(records) < info.high_watermark:
                records += consumer.poll(10_000)
            return records


@pytest.fixture
def shell(gateway: GatewayProcess) -> Shell:
    return Shell(gateway.url)


ORDERS = [
    {"id": 1, "customer": "ana", "amount": 2.5},
    {"id": 2, "customer": "bob", "amount": 4},
    {"id": 3, "customer": "ana", "amount": 1, "gift": True},
]


def test_json_values_are_columns(shell: Shell) -> None:
    orders = shell.topic(*ORDERS)

    query = f"SELECT customer, sum(amount) AS total FROM {orders} GROUP BY 1 ORDER BY 1"
    assert shell.rows(query) == [
        {"customer": "ana", "total": 3.5},
        {"customer": "bob", "total": 4.0},
    ]
    [row] = shell.rows(f"SELECT * FROM {orders} WHERE gift")
    assert row == {
        "id": 3, "customer": "ana", "amount": 1.0, "gift": True, "_key": "2", "_partition": 0,
        "_offset": 2, "_timestamp": "1970-01-01 00:00:03", "_headers": row["_headers"],
    }  # fmt: skip


def test_other_values_are_text_and_names_may_need_backticks(shell: Shell) -> None:
    lines = shell.topic("hello", "world", suffix="-log.txt")

    found = shell.sql("-q", "-o", "csv", f"SELECT key, value FROM `{lines}` ORDER BY _offset")
    assert found.stdout == "key,value\n0,hello\n1,world\n"
    for query in (f"SELECT * FROM {lines}", f"SELECT * FROM {lines.replace('-', '')}"):
        assert shell.sql("-q", query).exit_code in (1, 2)


def test_a_dotted_name_without_backticks_is_explained(shell: Shell) -> None:
    dotted = shell.topic("x", suffix=".log")

    found = shell.sql("-q", f"SELECT * FROM {dotted}")

    assert found.exit_code == 2
    assert found.stderr == f"riacho: write the topic in backticks: FROM `{dotted}`\n"


def test_from_and_to_bound_what_is_read(shell: Shell) -> None:
    orders = shell.topic(*({"id": number} for number in range(10)))

    def ids(*args: str) -> list[int]:
        return [row["id"] for row in shell.rows(f"SELECT id FROM {orders} ORDER BY id", *args)]

    assert ids("--from", "7") == [7, 8, 9]
    assert ids("--from", "-2") == [8, 9]
    assert ids("--from", "2", "--to", "4") == [2, 3]
    assert ids("--from", "@5000", "--to", "@7000") == [4, 5]
    assert ids("--from", "-1h") == []
    assert ids("--from", "end") == []
    assert ids("-n", "1") == [0]


def test_topics_are_joined_and_schemas_given(shell: Shell) -> None:
    orders = shell.topic(*ORDERS)
    empty = shell.topic(suffix="-none")
    query = (
        f"WITH big AS (SELECT * FROM {orders} WHERE amount > 2)"
        f" SELECT big.id, n.name FROM big LEFT JOIN `{empty}` n ON n.id = big.id ORDER BY 1"
    )

    found = shell.rows(query, "--schema", f"{empty}=id BIGINT, name STRING")

    assert found == [{"id": 1, "name": None}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("query", "exit_code", "told"),
    [
        ("SELEC 1", 2, "yntax error"),
        ("SELECT nope FROM {orders}", 2, "nope"),
        ("SELECT * FROM nope", 1, "no topic 'nope'"),
        ("SELECT 1/id/0 FROM {orders}", 1, "ivision by zero"),
    ],
)
def test_what_is_wrong_is_said_on_one_line(
    shell: Shell, query: str, exit_code: int, told: str
) -> None:
    found = shell.sql("-q", query.format(orders=shell.topic(*ORDERS)))

    assert found.exit_code == exit_code, found.stderr
    assert told in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert found.stdout == ""


def test_a_query_that_goes_on_writes_each_result_once(shell: Shell, tmp_path: Path) -> None:
    orders, large = shell.topic(*ORDERS), shell.topic()
    query = f"SELECT * FROM {orders} WHERE amount > 2"
    args = ("-c", "--into", large, query, "--once", "--checkpoint", str(tmp_path))

    assert shell.sql(*args).exit_code == 0
    with Producer(shell.url) as producer:
        producer.send(orders, json.dumps({"id": 4, "customer": "eve", "amount": 9}), key="3")
    assert shell.sql(*args).exit_code == 0

    records = shell.read(large)
    assert [record.key for record in records] == [b"0", b"1", b"3"]
    assert records[0].json() == {"id": 1, "customer": "ana", "amount": 2.5, "gift": None}
    assert records[0].timestamp == 1000


def test_windows_are_written_when_they_are_over(shell: Shell, tmp_path: Path) -> None:
    orders, counts = shell.topic(*({"id": number} for number in range(10))), shell.topic()
    query = (
        "SELECT cast(window(_timestamp, '4 seconds').start AS string) AS key, count(*) AS orders"
        f" FROM {orders} GROUP BY window(_timestamp, '4 seconds')"
    )
    args = ("-c", "--into", counts, query, "--once", "--checkpoint", str(tmp_path))

    refused = shell.sql("-q", *args)
    assert refused.exit_code == 2
    assert "--watermark" in refused.stderr
    assert shell.sql(*args, "--watermark", "1 second").exit_code == 0

    found = {record.key: record.json() for record in shell.read(counts)}
    assert found == {b"1970-01-01 00:00:00": {"orders": 3}, b"1970-01-01 00:00:04": {"orders": 4}}


def test_aggregates_are_written_as_they_change(shell: Shell, tmp_path: Path) -> None:
    orders, totals = shell.topic(*ORDERS), shell.topic()
    query = f"SELECT customer AS _key, sum(amount) AS total FROM {orders} GROUP BY customer"
    args = ("-c", "--into", totals, query, "--mode", "update", "--once")
    place = ("--checkpoint", str(tmp_path))

    assert shell.sql(*args, *place).exit_code == 0
    with Producer(shell.url) as producer:
        producer.send(orders, json.dumps({"customer": "ana", "amount": 10}))
    assert shell.sql(*args, *place).exit_code == 0

    records = [(record.key, record.json()["total"]) for record in shell.read(totals)]
    assert sorted(records[:2]) == [(b"ana", 3.5), (b"bob", 4.0)]
    assert records[2:] == [(b"ana", 13.5)]


def test_a_query_that_cannot_go_on_is_refused(shell: Shell, tmp_path: Path) -> None:
    orders, target = shell.topic(*ORDERS), shell.topic()
    place = ("--once", "--checkpoint", str(tmp_path))
    for query, told in (
        ("SELECT 1 AS x", "reads topics"),
        (f"SELECT _key FROM {orders}", "nothing is selected for the value"),
        (f"SELECT id, id FROM {orders}", "two columns"),
        (f"SELECT * FROM {shell.topic()}", "--schema"),
    ):
        found = shell.sql("-q", "-c", "--into", target, query, *place)
        assert found.exit_code == 2, found.stderr
        assert told in found.stderr

    missing = shell.sql("-q", "-c", "--into", "nowhere", "SELECT 1", *place)
    assert missing.exit_code == 1
    assert "riacho topic create nowhere" in missing.stderr
    with suppress(ValueError):
        assert shell.read(target) == []
