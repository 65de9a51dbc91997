"""Records that are in no bucket yet: plans hold some of them, and tasks ask for the rest."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from riacho import Admin
from riacho.spark.read import log
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.spans import SpanReader, Wishes
from tests.gateway import GatewayProcess, start_gateway
from tests.riacho.spark.reads import ALL, produce, table

VALUES = [f"v{n}" for n in range(30)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that keeps small flushes in the table, and has written some large ones."""
    path: Path = tmp_path_factory.mktemp("gateway")
    env = {"RIACHO_TABLE_BATCH_BYTES_MAX": "4096"}
    with start_gateway(path, "--log-level", "warning", env=env) as process:
        with Admin(process.url) as admin:
            admin.create_topic("t")
        produce(process.url, "t", VALUES[:20])
        produce(process.url, "t", [random.Random(n).randbytes(5000).hex() for n in range(3)])
        produce(process.url, "t", VALUES[20:])
        yield process


def reader(gateway: GatewayProcess) -> RiachoReader:
    return RiachoReader({"url": gateway.url, "subscribe": "t"}, ALL)


def tasks(read: RiachoReader) -> list[SpanPartition]:
    return [each for each in read.partitions() if isinstance(each, SpanPartition)]


def values(read: RiachoReader, planned: list[SpanPartition]) -> list[str]:
    found = table(read, planned).column("value").to_pylist()
    return [value.decode() for value in found if len(value) < 100]


def test_a_plan_holds_them(gateway: GatewayProcess) -> None:
    read = reader(gateway)
    [task] = tasks(read)
    assert task.span.ranges is not None
    assert {each.is_in_url for each in task.span.ranges} == {True, False}

    wishes = Wishes(url="http://127.0.0.1:1", schema=read._schema, bounds=read._bounds,
                    fail_on_data_loss=True)  # fmt: skip
    with SpanReader(wishes) as task_reader:
        batches = [*task_reader.batches(task.span, 0)]

    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(33))
    assert (task_reader.fetches, task_reader.relocations) == (0, 0)
    assert values(read, [task]) == VALUES


def test_a_plan_holds_only_so_much_of_them(
    gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "DATA_BYTES_MAX", 0)
    read = reader(gateway)

    planned = tasks(read)

    assert [task.span.ranges for task in planned] == [None]
    assert values(read, planned) == VALUES


@pytest.mark.parametrize("ending", ["", "AAAA", "?"])
def test_bytes_that_are_not_right_are_asked_for_again(gateway: GatewayProcess, ending: str) -> None:
    read = reader(gateway)
    [task] = tasks(read)
    first, *others = task.span.ranges or ()
    assert first.is_in_url
    broken = msgspec.structs.replace(first, url=first.url[: len(first.url) // 8 * 4] + ending)
    span = replace(task.span, ranges=(broken, *others))

    assert values(read, [replace(task, span=span)]) == VALUES
