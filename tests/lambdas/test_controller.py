"""The controller on a schedule: zones, groups and transactions are looked after between calls."""

import io
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.serverless.controller import ScheduledController
from service.serverless.gateway import ServerlessGateway
from service.serverless.metrics import MetricLog
from service.serverless.settings import controller_settings, gateway_settings
from service.world.clock import World, real_world
from tests.integration.processes import Api
from tests.lambdas.conftest import through
from tests.lambdas.runtime import environment

HOUR_S = 3600
HALF_PAST_S = 1830


class Context:
    def __init__(self, left_s: float = 60.0) -> None:
        self._left_s = left_s

    def get_remaining_time_in_millis(self) -> int:
        return int(self._left_s * 1000)


class Frozen:
    """A gateway and a controller whose process stands still for as long as a test wants."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.log = io.StringIO()
        world = self.world()
        self.controller = ScheduledController(
            controller_settings(), world, MetricLog(world.now_ms, self.log)
        )
        self.gateway = ServerlessGateway(gateway_settings(), self.world())

    def world(self) -> World:
        real = real_world()
        return replace(real, now_ms=lambda: real.now_ms() + int(self.wall_s * 1000))

    def invoke(self, event: object) -> object:
        return self.gateway(event, Context())  # type: ignore[arg-type]

    def tick(self, after_s: float = 60.0) -> dict[str, object]:
        self.wall_s += after_s
        return self.controller({}, Context())


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frozen]:
    monkeypatch.setenv("RIACHO_ZONES", "a,b")
    monkeypatch.setenv("RIACHO_DATA", str(tmp_path))
    monkeypatch.setenv("RIACHO_LOG_LEVEL", "error")
    made = Frozen()
    yield made
    made.controller.close()
    made.gateway.close()


@pytest.fixture
def api(frozen: Frozen) -> Iterator[Api]:
    with through(frozen) as api:  # type: ignore[arg-type]
        yield api


def test_members_and_transactions_that_no_call_meets_end(frozen: Frozen, api: Api) -> None:
    topic = api.topic()
    api.http.post("/v1/groups/g/members", json={"topics": [topic]})
    api.http.post("/v1/transactions", json={"transactional_id": "t", "timeout_ms": 30_000})
    frozen.tick(1)
    assert api.http.get("/v1/groups/g").json()["member_count"] == 1
    # Nothing but the wall clock goes on, as it does for an environment that is frozen.
    for _ in range(10):
        frozen.tick()
    assert api.http.get("/v1/groups/g").json()["member_count"] == 0
    [transaction] = api.http.get("/v1/transactions").json()["transactions"]
    assert transaction["state"] != "Ongoing"


def test_a_zone_that_was_emptied_is_filled_again(frozen: Frozen, api: Api, tmp_path: Path) -> None:
    topic = api.topic(replication_factor=2)
    api.produce(topic, [{"value": os.urandom(5000).hex()}])
    assert frozen.tick()["controller"]
    shutil.rmtree(tmp_path / "zones" / "b")
    for _ in range(6):
        frozen.tick()
    [partition] = api.http.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    assert sorted(partition["isr"]) == ["a", "b"]
    sizes = [p.stat().st_size for p in (tmp_path / "zones" / "b").rglob("*") if p.is_file()]
    assert max(sizes) > 5000


def test_a_tick_is_counted(frozen: Frozen) -> None:
    frozen.tick()
    [line] = frozen.log.getvalue().splitlines()
    told = json.loads(line)
    assert told["ControllerTick"] == 1
    assert told["_aws"]["CloudWatchMetrics"] == [
        {
            "Namespace": "Riacho",
            "Dimensions": [[]],
            "Metrics": [{"Name": "ControllerTick", "Unit": "Count"}],
        }
    ]


def test_what_has_expired_is_forgotten_once_an_hour(frozen: Frozen) -> None:
    # From half past on, so that what follows is one full hour, whatever the time is.
    frozen.wall_s += (HALF_PAST_S - frozen.world().now_ms() / 1000) % HOUR_S
    reports = [frozen.tick()["expired"] for _ in range(61)]
    assert reports.count(True) == 1


@pytest.mark.aws
@pytest.mark.slow
def test_the_function_ticks_on_the_local_aws(stores: dict[str, str]) -> None:
    with environment("lambdas.controller.handler", stores) as function:
        event = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}
        assert function.invoke(event)["controller"]
        assert function.invoke(event)["controller"]
        assert function.output().count('"ControllerTick": 1') == 2
