"""Compacted topics are Parquet: anything reads them, straight from the zone, without Riacho.

What DuckDB and pandas find in the files is compared with what a gateway serves.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import pytest
from pyarrow import dataset
from pyarrow import fs as s3fs

from tests.commands import exit_code
from tests.integration.processes import (
    ARROW,
    Api,
    Deployment,
    Json,
    arrow_records,
    cloud,
    embedded,
)
from tests.local_aws import LocalAws
from tests.storage.helpers import servers

PARTITIONS: Final = 2
COLUMNS: Final = ["offset", "timestamp", "key", "value", "headers"]

Row = dict[str, Any]


def records(count: int, start: int = 0) -> list[Json]:
    """Return records of every shape: no value, an empty one, bytes, headers twice and without."""
    return [
        {
            "key": f"key-{number % 17}",
            "value": None if number % 7 == 3 else "" if number % 7 == 4 else f"value {number} ä",
            "timestamp": 1_700_000_000_000 + number * 1000,
            "headers": [
                {"key": "trace", "value": f"t{number}"},
                {"key": "trace", "value": None},
            ][: number % 3],
        }
        for number in range(start, start + count)
    ]


def fill(api: Api, topic: str, start: int) -> None:
    for begin in range(start, start + 120, 40):
        for partition in range(PARTITIONS):
            api.produce(topic, records(40, begin + partition), partition=partition)


def run(deployment: Deployment, *arguments: str) -> Json:
    data = {"RIACHO_DATA": str(deployment.folder / "data")}
    args = (*arguments, "--no-spark", "-o", "json")
    code, said = exit_code(*args, env={**data, **deployment.env})
    assert code == 0, said
    return json.loads(said.stdout)


class Tidied:
    """A topic of which everything is compacted, and what a gateway serves of it."""

    def __init__(self, deployment: Deployment, api: Api, name: str, config: Json) -> None:
        api.topic(PARTITIONS, name, config=config)
        for start in (0, 120):
            fill(api, name, start)
            told = run(deployment, "compact", name, "--force")
            assert told["partitions"] == PARTITIONS
        # Segments that were rewritten are nobody's any more.
        run(deployment, "sweep", "--unsafe", "--min-age", "0s")
        topic_id = api.http.get(f"/v1/topics/{name}").json()["id"]
        self.prefix = f"log/{topic_id}"
        self.served = {partition: served(api, name, partition) for partition in range(PARTITIONS)}
        self.is_keyed = "cleanup.policy" in config

    def check(self, partition: int, rows: Sequence[Row]) -> None:
        """Compare rows of a file reader with what was served."""
        found = [_row(row) for row in rows]
        assert found == self.served[partition]
        # And that is worth comparing.
        assert {row["value"] for row in found} >= {None, b""}
        assert {len(row["headers"]) for row in found} == {0, 1, 2}
        assert len(found) == (17 if self.is_keyed else 240)


def served(api: Api, topic: str, partition: int) -> list[Row]:
    """Return a partition as the gateway serves it."""
    found: list[Row] = []
    offset = 0
    while True:
        reply = api.get(topic, partition, accept=ARROW, offset=offset)
        assert reply.status_code == 200, reply.text
        found += [_row(record) for record in arrow_records(reply.content)]
        offset = int(reply.headers["riacho-next-offset"])
        if offset >= int(reply.headers["riacho-high-watermark"]):
            return found


def _row(record: Row) -> Row:
    """Return a record with headers as pairs, and none as no pairs."""
    headers = record["headers"]
    pairs = [] if headers is None else [(each["key"], each["value"]) for each in headers]
    return {name: record[name] for name in COLUMNS[:-1]} | {"headers": pairs}


KINDS: Final = {"merged": {}, "by-key": {"cleanup.policy": "compact"}}


@pytest.fixture(scope="module", params=KINDS)
def on_disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tidied, Path]:
    deployment = embedded(tmp_path_factory.mktemp("parquet"))
    with deployment.start() as gateway, Api(gateway.url) as api:
        tidied = Tidied(deployment, api, request.param, KINDS[request.param])
    return tidied, deployment.folder / "data" / "zones" / "a"


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_duckdb_reads_a_topic_from_the_directory(
    on_disk: tuple[Tidied, Path], partition: int
) -> None:
    tidied, zone = on_disk
    files = f"{zone}/*/{tidied.prefix}/{partition:05d}/*.parquet"
    with duckdb.connect() as connection:
        found = connection.execute(
            'SELECT "offset", timestamp, key, value, headers'
            " FROM read_parquet(?, hive_partitioning = false) ORDER BY 1",
            [files],
        )
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in found.fetchall()]
        [[last]] = connection.execute(
            "SELECT count(*) FROM read_parquet(?) WHERE timestamp >= ?",
            [files, rows[-1]["timestamp"]],
        ).fetchall()
    tidied.check(partition, rows)
    assert last == 1


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_pandas_reads_a_topic_from_the_directory(
    on_disk: tuple[Tidied, Path], partition: int
) -> None:
    tidied, zone = on_disk
    files = sorted(zone.glob(f"*/{tidied.prefix}/{partition:05d}/*.parquet"), key=lambda p: p.name)
    frame = pd.concat([pd.read_parquet(path) for path in files], ignore_index=True)
    assert list(frame.columns) == COLUMNS
    assert frame["offset"].is_monotonic_increasing
    tidied.check(partition, frame.to_dict("records"))


@pytest.mark.aws
@pytest.mark.parametrize("kind", KINDS)
def test_arrow_and_duckdb_read_a_topic_from_the_bucket(
    tmp_path: Path, local_aws: LocalAws, kind: str
) -> None:
    deployment = cloud(tmp_path, local_aws)
    with deployment.start() as gateway, Api(gateway.url) as api:
        tidied = Tidied(deployment, api, kind, KINDS[kind])
    bucket = deployment.env["RIACHO_ZONES"].removeprefix("a=s3://")
    store = s3fs.S3FileSystem(
        access_key=servers.ACCESS_KEY,
        secret_key=servers.SECRET_KEY,
        region=servers.REGION,
        endpoint_override=local_aws.s3,
    )
    everything = store.get_file_info(s3fs.FileSelector(bucket, recursive=True))
    for partition in range(PARTITIONS):
        folder = f"/{tidied.prefix}/{partition:05d}/"
        paths = [info.path for info in everything if folder in info.path]
        found = dataset.dataset(paths, format="parquet", filesystem=store).to_table()
        with duckdb.connect() as connection:
            ordered = connection.from_arrow(found).order('"offset"').to_arrow_table()
        tidied.check(partition, ordered.to_pylist())
