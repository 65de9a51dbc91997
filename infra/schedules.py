"""The schedules: which functions EventBridge calls, and how often."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.functions import Functions
from infra.parameters import Parameters
from infra.spark_jobs import SparkJobs

JOB: str = "maintain"
ENDED = ("SUCCESS", "FAILED", "CANCELLED")


class Schedules(Construct):
    """Ticks of the controller, runs of maintenance, and events when runs have ended."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        parameters: Parameters,
        functions: Functions,
        jobs: SparkJobs,
    ) -> None:
        super().__init__(scope, name)
        tick = Duration.minutes(parameters.controller_minutes)
        # A tick that was not delivered is not retried for long: the next one replaces it.
        events.Rule(
            self,
            "ControllerTick",
            description="The controller looks at zones",
            schedule=events.Schedule.rate(tick),
            targets=[
                targets.LambdaFunction(
                    functions.controller,
                    retry_attempts=0,
                    max_event_age=Duration.minutes(1),
                )
            ],
        )
        if parameters.maintain_minutes:
            self._maintain(parameters, functions)
        if functions.connect is not None:
            events.Rule(
                self,
                "Connect",
                description="Connectors run",
                schedule=events.Schedule.rate(Duration.minutes(parameters.connect_minutes)),
                targets=[
                    targets.LambdaFunction(
                        functions.connect, retry_attempts=0, max_event_age=Duration.minutes(1)
                    )
                ],
            )
        events.Rule(
            self,
            "JobEnded",
            description="A job of this deployment has ended",
            event_pattern=events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                detail={"applicationId": [jobs.application_id], "state": list(ENDED)},
            ),
            targets=[
                targets.LambdaFunction(
                    functions.compaction,
                    retry_attempts=2,
                    max_event_age=Duration.minutes(15),
                )
            ],
        )

    def _maintain(self, parameters: Parameters, functions: Functions) -> None:
        events.Rule(
            self,
            "Maintain",
            description="Retention, compaction and sweep",
            schedule=events.Schedule.rate(Duration.minutes(parameters.maintain_minutes)),
            targets=[
                targets.LambdaFunction(
                    functions.compaction,
                    event=events.RuleTargetInput.from_object({"job": JOB}),
                    retry_attempts=2,
                    max_event_age=Duration.minutes(15),
                )
            ],
        )
