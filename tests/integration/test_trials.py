"""Real gateways and clients under kills, sleeps and the faults of AWS, judged by the checker.

    make proof PART=trials
    export RIACHO_CRASH_SECONDS=40 RIACHO_CRASH_SEEDS=7,8,9 RIACHO_TEST_SECONDS_MAX=inf
    pytest tests/integration/test_trials.py

A run that fails tells its seed, the command that repeats it, and where the history is. Processes
do not repeat themselves exactly; the trouble they meet does.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker.history import History
from tests.integration.fault_proxy import FAULTS, Fault, Weather, behind_faults
from tests.integration.processes import Deployment, cloud, embedded
from tests.integration.trial import Trial, judge, unknown_outcomes
from tests.local_aws import LocalAws
from tests.time_limit import VARIABLE
from tests.torture.sizes import only_proof

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("RIACHO_CRASH_SECONDS", "2"))
LONG_S = 30.0
SEEDS = [int(seed) for seed in os.environ.get("RIACHO_CRASH_SEEDS", "1").split(",")]

pytestmark = [
    pytest.mark.parametrize("seed", SEEDS),
    pytest.mark.timeout(1800 + 2 * SECONDS),
]


@contextmanager
def replayable(trial: Trial, request: pytest.FixtureRequest) -> Iterator[History]:
    """Run a trial, let the test look whether there was trouble, and judge it."""
    history = trial.run()
    replay = (
        f"RIACHO_CRASH_SECONDS={SECONDS:g} RIACHO_CRASH_SEEDS={trial.seed} {VARIABLE}=inf"
        f" pytest '{request.node.nodeid}'"
    )
    judge(trial, history, replay)
    log.warning("%s: %s", request.node.name, summary(trial, history))
    yield history
    assert any(call.base is not None for call in history.produced)
    assert trial.happened["put to sleep"]
    assert trial.happened["gateway killed"]
    assert unknown_outcomes(history)


def summary(trial: Trial, history: History) -> str:
    acked = sum(call.base is not None for call in history.produced)
    ends = len(history.transactions.endings)
    told = [f"{acked} acked of {len(history.produced)} produced", f"{ends} ends of transactions"]
    told += [f"{len(history.fetched)} fetches", f"{len(history.group.delivered)} deliveries"]
    told += [f"{unknown_outcomes(history)} unknown", str(dict(trial.happened))]
    if trial.weather is not None:
        told.append(str({str(fault): n for fault, n in trial.weather.totals().items()}))
    return ", ".join(told)


@only_proof  # In every run, the AWS below three zones fails.
@pytest.mark.aws
def test_gateways_over_an_aws_that_fails(
    tmp_path: Path, local_aws: LocalAws, seed: int, request: pytest.FixtureRequest
) -> None:
    weather = Weather(seed)
    with behind_faults(local_aws, weather) as aws:
        direct = cloud(tmp_path, local_aws)
        deployment = replace(direct, env={**direct.env, **aws.env})
        gateways = 2 if SECONDS < LONG_S else 2 + seed % 2
        trial = Trial(deployment, seed, SECONDS, gateways, weather=weather)
        with replayable(trial, request):
            every = {fault for faults in FAULTS.values() for fault in faults}
            assert every <= weather.totals().keys()


@pytest.mark.aws
def test_gateways_over_three_zones_of_which_one_is_lost(
    tmp_path: Path, local_aws: LocalAws, seed: int, request: pytest.FixtureRequest
) -> None:
    weather = Weather(seed, rate=0.05)
    name = f"riacho-{secrets.token_hex(6)}"
    buckets = {zone: f"{name}-{zone}" for zone in "abc"}
    zones = ",".join(f"{zone}=s3://{bucket}/log" for zone, bucket in buckets.items())
    with behind_faults(local_aws, weather) as aws:
        env = {**local_aws.prepare(zones, f"dynamodb://{name}"), **aws.env}
        deployment = Deployment("cloud", tmp_path, env)
        trial = Trial(deployment, seed, SECONDS, gateways=2, weather=weather, zones=buckets)
        with replayable(trial, request):
            assert trial.happened["zone lost"]
            assert weather.totals()[Fault.RESET]


def test_an_embedded_gateway_with_workers(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    trial = Trial(embedded(tmp_path), seed, SECONDS, gateways=1, args=("--workers", "2"))
    with replayable(trial, request):
        assert trial.happened["worker killed"]
