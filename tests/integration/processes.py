"""Deployments of the service for black-box tests: real processes, plain HTTP, no client library.

A deployment is where the data lives and how a gateway is told so. Any number of gateways may be
started on one, at once or after each other:

    with embedded(tmp_path).start() as gateway:
        httpx.get(gateway.url + "/v1/topics")
"""

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import pyarrow as pa

from tests.gateway import GatewayProcess, start_gateway
from tests.local_aws import LocalAws

Json: TypeAlias = Any

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
SSE: Final = "text/event-stream"

TIMEOUT_S: Final = 60.0
"""Far longer than anything takes: a test that gets there has failed, not a slow machine."""

_numbers: Final = itertools.count()


@dataclass(frozen=True)
class Deployment:
    kind: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def start(
        self, *args: str, port: int | None = None, env: Mapping[str, str] | None = None
    ) -> GatewayProcess:
        """Start one gateway; return when it is ready."""
        settings = {"RIACHO_LOG_LEVEL": "warning", **self.env, **(env or {})}
        return start_gateway(self.folder, *args, env=settings, port=port)


def embedded(folder: Path) -> Deployment:
    """A directory and SQLite: what `riacho serve` does by default."""
    return Deployment("embedded", folder)


def cloud(folder: Path, aws: LocalAws) -> Deployment:
    """A bucket and a DynamoDB table of their own, on a local AWS."""
    name = f"riacho-{folder.name.lower().replace('_', '-')}-{secrets.token_hex(4)}"
    return Deployment("cloud", folder, aws.prepare(f"a=s3://{name}/log", f"dynamodb://{name}"))


class Api:
    """The HTTP API as a person with curl sees it, and a few lines saved."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=TIMEOUT_S)

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def topic(self, partitions: int = 1, name: str | None = None, **fields: Json) -> str:
        """Create a topic and return its name."""
        name = name or f"topic-{next(_numbers)}"
        body = {"name": name, "partitions": partitions, **fields}
        response = self.http.post("/v1/topics", json=body)
        assert response.status_code == 201, response.text
        return name

    def send(
        self,
        topic: str,
        content: bytes | str,
        media_type: str = JSON,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        **params: Json,
    ) -> httpx.Response:
        """POST a produce body as it is."""
        return self.http.post(
            records_path(topic, partition),
            content=content,
            headers={"content-type": media_type, **(headers or {})},
            params=params,
        )

    def produce(
        self, topic: str, records: Sequence[Json], partition: int | None = None, **params: Json
    ) -> list[Json]:
        """Produce JSON records and return the results."""
        body = json.dumps({"records": records})
        response = self.send(topic, body, partition=partition, **params)
        assert response.status_code in {200, 202}, response.text
        results: list[Json] = response.json()["results"]
        return results

    def get(
        self, topic: str, partition: int = 0, accept: str = JSON, **params: Json
    ) -> httpx.Response:
        """Fetch once, whatever comes of it."""
        return self.http.get(
            records_path(topic, partition), params=params, headers={"accept": accept}
        )

    def fetch(self, topic: str, partition: int = 0, **params: Json) -> Json:
        """Fetch once as JSON."""
        response = self.get(topic, partition, **params)
        assert response.status_code == 200, response.text
        return response.json()

    def read_all(self, topic: str, partition: int = 0, **params: Json) -> list[Json]:
        """Return every record there is now."""
        records: list[Json] = []
        offset = 0
        while True:
            page = self.fetch(topic, partition, offset=offset, **params)
            records += page["records"]
            offset = page["next_offset"]
            if offset >= page["high_watermark"]:
                return records

    def read_all_arrow(self, topic: str, partition: int = 0) -> list[Json]:
        """Return every record there is now, read as Arrow."""
        records: list[Json] = []
        offset = 0
        while True:
            response = self.get(topic, partition, accept=ARROW, offset=offset)
            assert response.status_code == 200, response.text
            records += arrow_records(response.content)
            offset = int(response.headers["riacho-next-offset"])
            if offset >= int(response.headers["riacho-high-watermark"]):
                return records

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        response = self.http.get(f"/v1/topics/{topic}/partitions")
        assert response.status_code == 200, response.text
        offset: int = response.json()["partitions"][partition]["high_watermark"]
        return offset


def records_path(topic: str, partition: int | None = None) -> str:
    middle = "" if partition is None else f"/partitions/{partition}"
    return f"/v1/topics/{topic}{middle}/records"


def arrow_stream(columns: Mapping[str, pa.Array | Sequence[Json]]) -> bytes:
    """Return a table as an Arrow stream, as any data frame library would write it."""
    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def arrow_records(body: bytes) -> list[Json]:
    """Return the records of an Arrow response as dictionaries, each with its offset."""
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        bases = json.loads(reader.schema.metadata[b"riacho.base_offsets"])
    assert len(bases) == len(batches)
    return [
        {"offset": base + row, **record}
        for base, batch in zip(bases, batches, strict=True)
        for row, record in enumerate(batch.to_pylist())
    ]


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield server-sent events, comments left out."""
    event: dict[str, str] = {}
    for line in lines:
        if not line:
            if event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
