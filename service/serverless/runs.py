"""Runs of jobs on a cluster: the scope of each, and whether another may start. Pure.

A *scope* is a job and its topics. At most one run of a scope is active: no run is started while one
is under way, and two launchers that see none derive the same token from the same last run, so the
cluster treats their requests as one.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.errors import InvalidRequest

JOBS: Final = ("maintain", "compact", "retention", "sweep", "fsck")
WITH_TOPICS: Final = ("compact", "retention", "fsck")

ENDED: Final = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
"""States of EMR Serverless in which a run has ended."""

NAME_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Scope:
    job: str
    topics: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its runs, by which they are found."""
        text = "/".join(("riacho", self.job, *self.topics))
        if len(text) <= NAME_CHARS_MAX:
            return text
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return f"riacho/{self.job}/{digest}"


def scope_of(event: dict[str, object]) -> Scope:
    """Return the scope that an event asks for. Raises `InvalidRequest`."""
    job = event.get("job", "maintain")
    topics = event.get("topics", [])
    if job not in JOBS:
        raise InvalidRequest(f"job: must be one of {', '.join(JOBS)}, not {job!r}")
    if not isinstance(topics, list) or not all(isinstance(t, str) and t for t in topics):
        raise InvalidRequest(f"topics: must be names of topics, not {topics!r}")
    if topics and job not in WITH_TOPICS:
        raise InvalidRequest(f"topics: {job} is for all of them")
    return Scope(str(job), tuple(sorted(set(topics))))


def job_of(name: str) -> str | None:
    """Return the job of a run with this name; None if it is not one of ours."""
    parts = name.split("/")
    return parts[1] if len(parts) > 1 and parts[0] == "riacho" and parts[1] in JOBS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    id: str
    name: str
    state: str
    created_s: float
    updated_s: float

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def under_way(scope: Scope, runs: Sequence[JobRun]) -> JobRun | None:
    """Return the run of this scope that has not ended."""
    return next((run for run in runs if run.name == scope.name and not run.has_ended), None)


def token(scope: Scope, runs: Sequence[JobRun]) -> str:
    """Return the token for the run that follows the last one of this scope."""
    ours = [run for run in runs if run.name == scope.name]
    last = max(ours, key=lambda run: (run.created_s, run.id)).id if ours else ""
    return hashlib.sha256(f"{scope.name}\n{last}".encode()).hexdigest()


def since_success_s(scope: Scope, runs: Sequence[JobRun], now_s: float) -> float:
    """Return the time since the last success of this scope; if none, since its first run began."""
    ours = [run for run in runs if run.name == scope.name]
    done = [run.updated_s for run in ours if run.state == "SUCCESS"]
    began = [run.created_s for run in ours]
    moment_s = max(done) if done else min(began, default=now_s)
    return max(0.0, now_s - moment_s)
