"""Schemas that are registered at once over several gateways, one of which is killed meanwhile."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import TIMEOUT_S, Deployment, embedded
from tests.integration.test_crashes import worker_pids

AT_ONCE = 50
KILLED_AFTER = 10
"""Number of answers after which a gateway is killed."""

ATTEMPTS_MAX = 20


def schema(number: int) -> str:
    fields = [{"name": "a", "type": "int"}]
    return json.dumps({"type": "record", "name": "R", "fields": fields, "number": number})


class Registry:
    """A client that asks another gateway when one does not answer."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.Client(timeout=TIMEOUT_S, limits=limits)
        self.refusals: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def register(self, subject: str, number: int, first: int) -> Any:
        """Register a schema, at first by the gateway with this number."""
        for url in islice(cycle(self.urls[first:] + self.urls[:first]), ATTEMPTS_MAX):
            try:
                path = f"{url}/subjects/{subject}/versions"
                answer = self.http.post(path, json={"schema": schema(number)})
            except httpx.TransportError:
                continue
            if answer.is_success:
                return answer.json()
            self.refusals.append(answer.text)
            assert answer.status_code >= 500, answer.text
        raise AssertionError(self.refusals)

    def all_at_once(
        self, subject: str, numbers: Sequence[int], then: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """Register many schemas over all gateways; after some answers, do something else."""
        with ThreadPoolExecutor(len(numbers)) as pool:
            calls = [
                pool.submit(self.register, subject, number, place % len(self.urls))
                for place, number in enumerate(numbers)
            ]
            done = as_completed(calls, timeout=TIMEOUT_S)
            answers = [next(done).result() for _ in range(KILLED_AFTER)]
            then()
            return answers + [each.result() for each in done]

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(self.urls[0] + path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def check(self, subject: str, count: int) -> None:
        """Every version and every schema is whole, and there are as many as were registered."""
        assert self.get(f"/subjects/{subject}/versions") == list(range(1, count + 1))
        last = self.get("/schemas/ids/1", fetchMaxId="true")["maxId"]
        found: dict[int, list[int]] = {}
        for schema_id in range(1, last + 1):
            told = self.get(f"/schemas/ids/{schema_id}")
            contexts = self.get(f"/schemas/guids/{told['guid']}/ids")
            assert contexts == [{"context": ".", "id": schema_id}]
            users = self.get(f"/schemas/ids/{schema_id}/versions")
            assert users, f"nobody has the schema {schema_id}"
            for user in users:
                version = self.get(f"/subjects/{user['subject']}/versions/{user['version']}")
                assert (version["id"], version["schema"]) == (schema_id, told["schema"])
                if user["subject"] == subject:
                    found.setdefault(schema_id, []).append(user["version"])
            [name] = {user["subject"] for user in users}
            again = self.http.post(self.urls[0] + f"/subjects/{name}", json=told)
            assert again.json()["id"] == schema_id, "its digest leads to it"
        assert sorted(each for versions in found.values() for each in versions) == [
            *range(1, count + 1)
        ]


@pytest.fixture(scope="module")
def gateways(deployment: Deployment) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(deployment.start()) for _ in range(3)]


def test_a_schema_registered_fifty_times_at_once_has_one_id(
    gateways: list[GatewayProcess],
) -> None:
    with Registry([each.url for each in gateways]) as registry:
        answers = registry.all_at_once("same", [0] * AT_ONCE)

        assert {(each["id"], each["version"]) for each in answers} == {(1, 1)}
        registry.check("same", 1)
        assert not registry.refusals


def test_fifty_schemas_have_fifty_versions_though_a_gateway_is_killed(
    gateways: list[GatewayProcess],
) -> None:
    with Registry([each.url for each in gateways]) as registry:
        answers = registry.all_at_once("many", range(1, AT_ONCE + 1), gateways[2].kill)

        assert sorted(each["version"] for each in answers) == list(range(1, AT_ONCE + 1))
        assert len({each["id"] for each in answers}) == AT_ONCE
        registry.check("many", AT_ONCE)


def test_a_worker_that_is_killed_leaves_nothing_half_registered(tmp_path: Path) -> None:
    with (
        embedded(tmp_path).start("--workers", "2") as gateway,
        Registry([gateway.url]) as registry,
    ):
        victim = worker_pids(gateway)[0]

        answers = registry.all_at_once(
            "many", range(AT_ONCE), lambda: os.kill(victim, signal.SIGKILL)
        )

        assert sorted(each["version"] for each in answers) == list(range(1, AT_ONCE + 1))
        registry.check("many", AT_ONCE)
