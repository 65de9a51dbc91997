"""Jobs are started once per scope, and what became of them is counted."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.serverless import runs
from service.serverless.emr import EmrRuns, emr_settings
from service.serverless.launcher import Launcher
from service.serverless.metrics import MetricLog
from service.serverless.runs import JobRun, Scope
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import InvalidRequest
from tests.lambdas.emr_server import EmrServer, emr_server
from tests.lambdas.runtime import environment

STORES = Settings(zones="a=s3://bucket", metadata="dynamodb://table")


class Function:
    """A launcher, and what it has told CloudWatch."""

    def __init__(self) -> None:
        self.log = io.StringIO()
        now_ms = real_world().now_ms
        cluster = EmrRuns(emr_settings(), STORES)
        self.handler = Launcher(cluster, MetricLog(now_ms, self.log), now_ms)

    def metrics(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        for line in lines:
            [about] = line.pop("_aws")["CloudWatchMetrics"]
            assert about["Namespace"] == "Riacho"
            assert {metric["Name"] for metric in about["Metrics"]} | {"Job"} == line.keys()
            assert about["Dimensions"] == [["Job"]]
        self.log.truncate(0)
        self.log.seek(0)
        return lines


@pytest.fixture
def emr(monkeypatch: pytest.MonkeyPatch, aws_environment: None) -> Iterator[EmrServer]:
    with emr_server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


def test_one_run_per_scope(emr: EmrServer) -> None:
    function = Function()
    first = function.handler({"job": "maintain"})
    assert first == {
        "job": "maintain",
        "topics": [],
        "run": "run0",
        "state": "SUBMITTED",
        "started": True,
    }
    assert function.metrics() == [{"Job": "maintain", "JobStarted": 1, "SecondsSinceSuccess": 0.0}]
    again = function.handler({"job": "maintain"})
    assert (again["started"], again["run"]) == (False, "run0")
    assert function.metrics()[0]["JobStarted"] == 0
    # Another scope has a run of its own.
    other = function.handler({"job": "compact", "topics": ["b", "a"]})
    assert (other["started"], other["topics"]) == (True, ["a", "b"])
    assert not function.handler({"job": "compact", "topics": ["a", "b", "a"]})["started"]
    assert len(emr.runs) == 2


def test_what_ended_is_counted_and_followed_by_another(emr: EmrServer) -> None:
    function = Function()
    for number, (state, succeeded) in enumerate(
        {"SUCCESS": 1, "FAILED": 0, "CANCELLED": 0}.items()
    ):
        run = function.handler({})
        assert run["run"] == f"run{number}"
        function.metrics()
        report = function.handler(emr.end(run["run"], state))
        assert report == {
            "job": "maintain",
            "run": run["run"],
            "state": state,
            "counted": True,
        }
        [counted] = function.metrics()
        assert (counted["JobSucceeded"], counted["JobFailed"]) == (succeeded, 1 - succeeded)
        assert ("SecondsSinceSuccess" in counted) == bool(succeeded)
    # A run that only goes on is not counted.
    event = emr.end(function.handler({})["run"], "RUNNING")
    function.metrics()
    assert not function.handler(event)["counted"]
    assert function.metrics() == []


def test_launchers_that_race_start_one_run(emr: EmrServer) -> None:
    functions = [Function() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda function: function.handler({"job": "sweep"}), functions))
    assert {report["run"] for report in reports} == {"run0"}
    emr.end("run0", "SUCCESS")
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda function: function.handler({"job": "sweep"}), functions))
    assert {report["run"] for report in reports} == {"run1"}


def test_the_cluster_is_told_all_it_needs(emr: EmrServer) -> None:
    Function().handler({"job": "compact", "topics": ["orders"]})
    [run] = emr.runs
    assert run["executionRoleArn"].endswith("role/job")
    submit = run["jobDriver"]["sparkSubmit"]
    assert submit["entryPoint"] == "s3://code/job.py"
    assert submit["entryPointArguments"] == [
        *("compact", "orders", "--zones", "a=s3://bucket", "--metadata", "dynamodb://table"),
        *("--spark", "--output", "json"),
    ]
    assert submit["sparkSubmitParameters"] == (
        "--archives 's3://code/package.tar.gz#riacho' --conf spark.executor.cores=2"
    )
    monitoring = run["configurationOverrides"]["monitoringConfiguration"]
    assert monitoring == {"s3MonitoringConfiguration": {"logUri": "s3://logs/"}}


def test_arguments_are_those_of_the_job(emr: EmrServer) -> None:
    from service.jobs.__main__ import _parser

    for job in runs.JOBS:
        topics = ["orders"] if job in runs.WITH_TOPICS else []
        Function().handler({"job": job, "topics": topics})
        arguments = emr.runs[-1]["jobDriver"]["sparkSubmit"]["entryPointArguments"]
        assert _parser().parse_args(arguments).job == job


@pytest.mark.parametrize(
    "event",
    [
        {"job": "nonsense"},
        {"topics": ["a"]},
        {"job": "compact", "topics": "a"},
        {"job": ["compact"]},
    ],
)
def test_what_makes_no_sense_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        runs.scope_of(event)


def test_how_long_ago_it_succeeded() -> None:
    def run(state: str, created_s: float, name: str = "riacho/maintain") -> JobRun:
        return JobRun(
            id=f"{created_s}", name=name, state=state, created_s=created_s, updated_s=created_s + 10
        )

    scope = Scope("maintain")
    assert runs.since_success_s(scope, [], 1000) == 0
    assert runs.since_success_s(scope, [run("FAILED", 100), run("FAILED", 200)], 1000) == 900
    known = [run("SUCCESS", 300), run("FAILED", 500), run("SUCCESS", 900, "riacho/sweep")]
    assert runs.since_success_s(scope, known, 1000) == 690


def test_names_of_scopes_are_theirs_alone() -> None:
    long = Scope("compact", tuple(f"topic-{number}" for number in range(100)))
    assert len(long.name) <= runs.NAME_CHARS_MAX
    assert long.name != Scope("compact", long.topics[:-1]).name
    assert runs.job_of(long.name) == "compact"
    assert runs.job_of("riacho/maintain") == "maintain"
    assert runs.job_of("another job") is None


def test_the_function_starts_a_job(emr: EmrServer) -> None:
    import os

    env = {name: value for name, value in os.environ.items() if name.startswith(("RIACHO", "AWS"))}
    stores = {"RIACHO_ZONES": STORES.zones, "RIACHO_METADATA": STORES.metadata}
    with environment("lambdas.compaction.handler", {**env, **stores}) as function:
        report = function.invoke({"job": "maintain"})
        assert report["started"]
        assert not function.invoke({"job": "maintain"})["started"]
        assert function.invoke(emr.end(report["run"], "SUCCESS"))["counted"]
        assert '"JobSucceeded": 1' in function.output()
