"""Alarms and a dashboard: what should page an operator, and what to look at then.

Besides errors and throttles of every function, two alarms fire if something does *not* happen:
the controller's tick and the end of a maintenance run. Handlers report both as metrics in the
namespace `Riacho`.
"""

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as aws_lambda
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.doors import Doors
from infra.functions import Functions
from infra.parameters import Parameters
from infra.schedules import JOB
from infra.stores import Stores

NAMESPACE: Final = "Riacho"
PERIOD: Final = Duration.minutes(5)
MISSED_TICKS_MAX: Final = 5
MISSED_RUNS_MAX: Final = 3
PERIOD_MINUTES_MAX: Final = 24 * 60
"""Longest span that one CloudWatch alarm evaluates."""


class Watching(Construct):
    """Alarms and dashboard of a deployment."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        parameters: Parameters,
        *,
        stores: Stores,
        functions: Functions,
        doors: Doors,
    ) -> None:
        super().__init__(scope, name)
        self._action = self._mail(parameters.alarm_email) if parameters.alarm_email else None
        for each, function in functions.all.items():
            self._function_alarms(each.capitalize(), function)
        self._alarm(
            "ControllerIsSilent",
            _controller_tick(parameters),
            f"No tick of the controller ended well for {MISSED_TICKS_MAX} of its turns",
            below=1,
            must_report=True,
        )
        if parameters.maintain_minutes:
            self._alarm(
                "MaintenanceIsLate",
                _since_success(parameters),
                f"No maintenance run ended well for {MISSED_RUNS_MAX} of its turns",
                above=MISSED_RUNS_MAX * parameters.maintain_minutes * 60,
                must_report=True,
            )
        self._alarm(
            "ApiFails",
            doors.api.metric_server_error(period=PERIOD, statistic="Sum"),
            "The HTTP API answered with a 5xx",
            above=0,
        )
        self._alarm(
            "TableIsThrottled",
            _table_metric(stores.table, "ThrottledRequests"),
            "DynamoDB refused requests: a partition of the table is too hot",
            above=0,
        )
        self.dashboard = self._dashboard(parameters, stores, functions, doors)

    def _mail(self, address: str) -> actions.SnsAction:
        topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        topic.add_subscription(subscriptions.EmailSubscription(address))
        return actions.SnsAction(topic)

    def _function_alarms(self, name: str, function: aws_lambda.Function) -> None:
        errors = function.metric_errors(period=PERIOD)
        self._alarm(f"{name}Fails", errors, f"The {name.lower()} function failed", above=0)
        throttles = function.metric_throttles(period=PERIOD)
        text = f"The {name.lower()} function was not run: too many at once"
        self._alarm(f"{name}IsThrottled", throttles, text, above=0)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        text: str,
        *,
        above: float | None = None,
        below: float | None = None,
        must_report: bool = False,
    ) -> None:
        """Add an alarm on a bound; for metrics that must be reported, also on their absence."""
        compared, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=text,
            evaluation_periods=1,
            threshold=above if above is not None else below or 0,
            comparison_operator=(
                compared.GREATER_THAN_THRESHOLD
                if above is not None
                else compared.LESS_THAN_THRESHOLD
            ),
            treat_missing_data=missing.BREACHING if must_report else missing.NOT_BREACHING,
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)

    def _dashboard(
        self, parameters: Parameters, stores: Stores, functions: Functions, doors: Doors
    ) -> cloudwatch.Dashboard:
        each = functions.all.values()
        api = doors.api
        return cloudwatch.Dashboard(
            self,
            "Dashboard",
            widgets=[
                [
                    _graph("Requests", [api.metric_count(), api.metric_server_error()]),
                    _graph("Latency", [api.metric_latency(statistic=s) for s in ("p50", "p99")]),
                ],
                [
                    _graph("Invocations", [f.metric_invocations() for f in each]),
                    _graph("Duration, p99", [f.metric_duration(statistic="p99") for f in each]),
                ],
                [
                    _graph("Errors", [f.metric_errors() for f in each]),
                    _graph("Throttles", [f.metric_throttles() for f in each]),
                ],
                [
                    _graph(
                        "Table, units",
                        [
                            _table_metric(stores.table, f"Consumed{kind}CapacityUnits")
                            for kind in ("Read", "Write")
                        ],
                    ),
                    _graph(
                        "Since the last maintenance, s",
                        [_since_success(parameters), _job_metric("JobFailed")],
                    ),
                ],
            ],
        )


def _graph(title: str, metrics: list[cloudwatch.Metric]) -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(title=title, width=12, left=metrics)


def _controller_tick(parameters: Parameters) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name="ControllerTick",
        statistic="Sum",
        period=Duration.minutes(MISSED_TICKS_MAX * parameters.controller_minutes),
    )


def _since_success(parameters: Parameters) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name="SecondsSinceSuccess",
        dimensions_map={"Job": JOB},
        statistic="Maximum",
        period=Duration.minutes(
            min(MISSED_RUNS_MAX * (parameters.maintain_minutes or 60), PERIOD_MINUTES_MAX)
        ),
    )


def _job_metric(name: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE, metric_name=name, dimensions_map={"Job": JOB}, statistic="Sum"
    )


def _table_metric(table: dynamodb.Table, name: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table.table_name},
        statistic="Sum",
        period=PERIOD,
    )
