"""Gateways and jobs whose clocks are a day apart."""

import random
from pathlib import Path

import pytest

from tests.integration.load import load, new_ledger, wait_for_acks, watch
from tests.integration.processes import TIMEOUT_S, Api
from tests.integration.zoned import until
from tests.torture.deployment import AS_OBJECTS, check_all, command, deployment
from tests.torture.shim import Disk, shifted_clock
from tests.torture.sizes import only_proof, some

pytestmark = pytest.mark.slow

DAY_S = 86_400
SHIFTS = pytest.mark.parametrize("shift_s", some([-DAY_S, DAY_S], -DAY_S))


@SHIFTS
def test_gateways_a_day_apart_share_a_log(tmp_path: Path, shim: Path, shift_s: int) -> None:
    here = deployment(tmp_path)
    shifted = deployment(tmp_path, shifted_clock(shim, shift_s))
    with here.start() as right, shifted.start() as wrong:
        ledger = new_ledger(right)
        urls = [right.url, wrong.url]
        with watch(ledger, urls), load(ledger, urls):
            wait_for_acks(ledger, 300)
        for gateway in (right, wrong):
            check_all(ledger, gateway, tmp_path)
        with Api(right.url) as api, Api(wrong.url) as other:
            check_time_is_shifted(api, other, shift_s)


def check_time_is_shifted(api: Api, other: Api, shift_s: int) -> None:
    """Make sure that the clocks differ at all: the time of a record tells."""
    topic = api.topic(config={"message.timestamp.type": "LogAppendTime"})
    for each in (api, other):
        each.produce(topic, [{"value": "v", "partition": 0}])
    first, second = (record["timestamp"] for record in api.read_all(topic))
    assert abs(second - first - shift_s * 1000) < 600_000, (first, second)


@SHIFTS
def test_a_gateway_with_a_wrong_clock_is_seen(tmp_path: Path, shim: Path, shift_s: int) -> None:
    beats = {"RIACHO_GATEWAY_HEARTBEAT_S": "0.5", "RIACHO_CONTROLLER_INTERVAL_S": "0.5"}
    shifted = deployment(tmp_path, shifted_clock(shim, shift_s), beats)
    with deployment(tmp_path, beats).start() as right, shifted.start() as wrong:
        pids = {right.process.pid, wrong.process.pid}
        for gateway in (right, wrong):
            with Api(gateway.url) as api:
                until(lambda api=api: seen(api) == pids, "both are seen", timeout_s=TIMEOUT_S)
        wrong.kill()
        with Api(right.url) as api:
            until(lambda: seen(api) == {right.process.pid}, "the one that is gone is not")


def seen(api: Api) -> set[int]:
    return {each["pid"] for each in api.http.get("/v1/cluster").json()["gateways"]}


@only_proof
@pytest.mark.parametrize("env", [{}, AS_OBJECTS], ids=["table", "objects"])
@pytest.mark.parametrize("whose", ["gateway", "sweep"])
@SHIFTS
def test_a_sweep_takes_nothing_that_is_needed_whichever_clock_is_wrong(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    shim: Path,
    shift_s: int,
    whose: str,
    env: dict[str, str],
) -> None:
    if whose == "gateway" and shift_s < 0 and not env:
        # Only its name tells how old a batch in the table is, and the gateway makes the name.
        limit = "batches in the table allow for clocks that are an hour behind, and not for a day"
        request.applymarker(pytest.mark.xfail(reason=limit, strict=False))
    disk = Disk(tmp_path, shim)
    disk.slow_down(0.05)  # So that much is written and not yet committed at any time.
    clock = {"SHIM_SHIFT_S": str(shift_s)}
    gateway_clock = clock if whose == "gateway" else {}
    sweep_clock = shifted_clock(shim, shift_s) if whose == "sweep" else {}
    with deployment(tmp_path, env, disk.env, gateway_clock).start() as gateway:
        ledger = new_ledger(gateway)
        rng = random.Random(1)
        with load(ledger, [gateway.url]):
            for _ in range(10):
                wait_for_acks(ledger, rng.randrange(5, 30))
                code, out, err = command(tmp_path, "sweep", "--no-spark", env=sweep_clock)
                assert code == 0, (out, err)
        check_all(ledger, gateway, tmp_path)
