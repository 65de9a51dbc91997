"""Starts jobs on a schedule, one run per scope, and reports how they ended.

{"job": "maintain"}                         start it, unless it is running
{"job": "compact", "topics": ["orders"]}
{"source": "aws.emr-serverless", …}         a run has changed its state: count it if it has ended
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from service.serverless import runs
from service.serverless.metrics import MetricLog
from service.serverless.runs import JobRun, Scope

STATE_CHANGE: Final = "aws.emr-serverless"


class Runs(Protocol):
    """The part of a cluster's interface that a launcher needs."""

    def all(self) -> list[JobRun]:
        """Return the runs that the cluster lists, in any order."""

    def get(self, run_id: str) -> JobRun:
        """Return one run."""

    def start(self, scope: Scope, token: str) -> str:
        """Start a run, once per `token`, and return its id."""


class Launcher:
    """Handles events of a schedule, and of the cluster."""

    def __init__(self, cluster: Runs, metrics: MetricLog, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._now_ms = now_ms

    def __call__(self, event: dict[str, Any], _context: object = None) -> dict[str, Any]:
        """Return a report of what was done, as JSON."""
        if event.get("source") == STATE_CHANGE:
            return self._changed(event["detail"])
        return self._launch(runs.scope_of(event))

    def _launch(self, scope: Scope) -> dict[str, Any]:
        known = self._cluster.all()
        since_s = runs.since_success_s(scope, known, self._now_ms() / 1000)
        running = runs.under_way(scope, known)
        if running is not None:
            self._metrics.write({"SecondsSinceSuccess": since_s, "JobStarted": 0}, Job=scope.job)
            return _report(scope, running.id, running.state, started=False)
        run_id = self._cluster.start(scope, runs.token(scope, known))
        self._metrics.write({"SecondsSinceSuccess": since_s, "JobStarted": 1}, Job=scope.job)
        return _report(scope, run_id, "SUBMITTED", started=True)

    def _changed(self, detail: dict[str, Any]) -> dict[str, Any]:
        run = self._cluster.get(detail["jobRunId"])
        job = runs.job_of(run.name)
        # Taken from the event: the run itself may have changed since.
        state = str(detail["state"])
        if job is None or state not in runs.ENDED:
            return {"run": run.id, "state": state, "counted": False}
        succeeded = state == "SUCCESS"
        numbers: dict[str, float] = {
            "JobSucceeded": int(succeeded),
            "JobFailed": int(not succeeded),
        }
        if succeeded:
            numbers["SecondsSinceSuccess"] = 0
        self._metrics.write(numbers, Job=job)
        return {"job": job, "run": run.id, "state": state, "counted": True}


def _report(scope: Scope, run_id: str, state: str, *, started: bool) -> dict[str, Any]:
    return {
        "job": scope.job,
        "topics": list(scope.topics),
        "run": run_id,
        "state": state,
        "started": started,
    }
