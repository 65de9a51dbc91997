"""EMR Serverless: runs jobs on Spark, without costs between runs."""

import os
import shlex
from datetime import datetime
from typing import Any, Final

import boto3
from botocore.config import Config
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.serverless.runs import JobRun, Scope
from service.settings import Settings

PAGES_MAX: Final = 20
"""Maximum pages of 50 runs to read: several days, if a run begins every few minutes."""

_CONFIG: Final = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard"})


class EmrSettings(BaseSettings):
    """What the deployment says about its cluster, in `RIACHO_EMR_*`."""

    model_config = SettingsConfigDict(env_prefix="RIACHO_EMR_", frozen=True, extra="ignore")

    application_id: str = Field(min_length=1)
    role_arn: str = Field(min_length=1)
    entry_point: str = Field(min_length=1)
    """`s3://` of `service/jobs/__main__.py`."""
    py_files: str = ""
    archives: str = ""
    log_uri: str = ""
    spark_params: str = ""
    timeout_minutes: int = 720


def emr_settings() -> EmrSettings:
    """Read the settings from the environment. Raises `ValidationError` if some are missing."""
    given: dict[str, Any] = {}
    return EmrSettings(**given)


class EmrRuns:
    """The runs of one application."""

    def __init__(self, cluster: EmrSettings, stores: Settings) -> None:
        self._cluster = cluster
        self._stores = stores
        # boto3 by itself knows only AWS_DEFAULT_REGION.
        self._client: Any = boto3.client(
            "emr-serverless", region_name=os.environ.get("AWS_REGION"), config=_CONFIG
        )

    def all(self) -> list[JobRun]:
        """Return the runs that the application lists, up to `PAGES_MAX` pages."""
        found: list[JobRun] = []
        request: dict[str, Any] = {"applicationId": self._cluster.application_id, "maxResults": 50}
        for _ in range(PAGES_MAX):
            page = self._client.list_job_runs(**request)
            found += [_run(each) for each in page["jobRuns"]]
            if not page.get("nextToken"):
                break
            request["nextToken"] = page["nextToken"]
        return found

    def get(self, run_id: str) -> JobRun:
        answer = self._client.get_job_run(
            applicationId=self._cluster.application_id, jobRunId=run_id
        )
        return _run({**answer["jobRun"], "id": answer["jobRun"]["jobRunId"]})

    def start(self, scope: Scope, token: str) -> str:
        """Start a run, or find the one that was started with this token; return its id."""
        cluster = self._cluster
        monitoring: dict[str, Any] = {}
        if cluster.log_uri:
            monitoring = {
                "configurationOverrides": {
                    "monitoringConfiguration": {
                        "s3MonitoringConfiguration": {"logUri": cluster.log_uri}
                    }
                }
            }
        answer = self._client.start_job_run(
            applicationId=cluster.application_id,
            clientToken=token,
            executionRoleArn=cluster.role_arn,
            executionTimeoutMinutes=cluster.timeout_minutes,
            name=scope.name,
            jobDriver={
                "sparkSubmit": {
                    "entryPoint": cluster.entry_point,
                    "entryPointArguments": self._arguments(scope),
                    "sparkSubmitParameters": self._parameters(),
                }
            },
            tags={"riacho:job": scope.job},
            **monitoring,
        )
        return str(answer["jobRunId"])

    def _arguments(self, scope: Scope) -> list[str]:
        stores = ("--zones", self._stores.zones, "--metadata", self._stores.metadata)
        return [scope.job, *scope.topics, *stores, "--spark", "--output", "json"]

    def _parameters(self) -> str:
        """Return further spark-submit parameters: packages, and those of the deployment."""
        given = [("--py-files", self._cluster.py_files), ("--archives", self._cluster.archives)]
        packages = [f"{name} {shlex.quote(value)}" for name, value in given if value]
        return " ".join([*packages, self._cluster.spark_params]).strip()


def _run(found: Any) -> JobRun:
    return JobRun(
        id=found["id"],
        name=found.get("name") or "",
        state=found["state"],
        created_s=_seconds(found["createdAt"]),
        updated_s=_seconds(found["updatedAt"]),
    )


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
