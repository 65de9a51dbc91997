"""Reads from a bucket by presigned URLs, as tasks on other machines do."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from riacho import Admin
from riacho.spark.read.direct import Direct, Unread
from riacho.spark.read.ranges import StoredRange
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.spans import SpanReader, Wishes
from tests.gateway import GatewayProcess
from tests.integration.processes import cloud
from tests.local_aws import LocalAws
from tests.riacho.spark.reads import ALL, columns, produce, table

pytestmark = pytest.mark.aws


@pytest.fixture(scope="module")
def gateway(
    local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with cloud(tmp_path_factory.mktemp("spark"), local_aws).start() as process:
        yield process


@pytest.fixture(scope="module")
def reader(gateway: GatewayProcess) -> RiachoReader:
    with Admin(gateway.url) as admin:
        admin.create_topic("t", partitions=2)
    for start in range(0, 60, 10):
        produce(gateway.url, "t", [f"v{n}" for n in range(start, start + 10)])
    return RiachoReader({"url": gateway.url, "subscribe": "t"}, ALL)


def ranges(reader: RiachoReader) -> tuple[StoredRange, ...]:
    [task] = reader.partitions()
    assert isinstance(task, SpanPartition)
    assert task.span.ranges
    return task.span.ranges


def test_tasks_read_the_bucket(reader: RiachoReader) -> None:
    assert all(each.url.startswith("http://") for each in ranges(reader))

    assert table(reader).column("value").to_pylist() == [b"v%d" % n for n in range(60)]


def test_a_task_reads_only_what_it_needs(reader: RiachoReader, gateway: GatewayProcess) -> None:
    few = RiachoReader({"url": gateway.url, "subscribe": "t"}, columns("offset", "key"))

    found = table(few)

    assert found.column("offset").to_pylist() == [*range(60)]
    assert found.column("key").to_pylist()[:2] == [b"k0", b"k1"]


def test_addresses_that_expired_are_asked_for_again(
    reader: RiachoReader, gateway: GatewayProcess
) -> None:
    [task] = reader.partitions()
    assert isinstance(task, SpanPartition)
    # Half of the objects are where the plan says, and the others are not there any more.
    old = tuple(
        msgspec.structs.replace(each, url=each.url.replace("/hot/", "/gone/"))
        if each.base_offset >= 30
        else each
        for each in task.span.ranges or ()
    )
    wishes = Wishes(
        url=gateway.url, schema=reader._schema, bounds=reader._bounds, fail_on_data_loss=True
    )

    with SpanReader(wishes) as task_reader:
        batches = [*task_reader.batches(replace(task.span, ranges=old), 0)]

    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == [*range(60)]
    assert (task_reader.relocations, task_reader.fetches) == (1, 0)


def test_an_error_keeps_the_signature_to_itself(reader: RiachoReader) -> None:
    each = ranges(reader)[0]

    with Direct() as direct, pytest.raises(Unread, match="status 4") as raised:
        direct.read(each.url.replace("/hot/", "/gone/"), each.start, each.end)

    assert "?" not in str(raised.value)
