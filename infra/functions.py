"""The functions: the same package, a role of its own for each.

    gateway      answers HTTP; writes objects and table, removes no object
    controller   once a minute: probes zones, brings them back in sync
    compaction   starts the maintenance job on EMR Serverless, and is called when it has ended
    connect      runs connectors for a minute, if asked for
    streaming    `riacho serve` behind the Lambda Web Adapter, if asked for

Roles are written out instead of using a managed policy, which would allow every log group.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as aws_lambda
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.parameters import LOG_DAYS, Parameters
from infra.reasons import accept
from infra.stores import READ_AND_WRITE, REMOVE, Stores

GATEWAY_TIMEOUT_S: Final = 29
"""API Gateway's maximum wait; the gateway's own limits stay below."""

STREAMING_TIMEOUT_S: Final = 300
"""A Function URL waits longer. At this limit a tail ends, and its client resumes it."""

CONTROLLER_TIMEOUT_S: Final = 55
COMPACTION_TIMEOUT_S: Final = 60
CONNECT_TIMEOUT_S: Final = 65
"""It stops 8 s before; until then another call finds its tasks leased, and waits for them."""

SMALL_MEMORY_MB: Final = 512

ADAPTER_ACCOUNT: Final = "753240598075"
"""The account of AWS that publishes the Lambda Web Adapter."""


class Functions(Construct):
    """Everything that runs on Lambda."""

    def __init__(self, scope: Construct, name: str, parameters: Parameters, stores: Stores) -> None:
        super().__init__(scope, name)
        self._parameters = parameters
        self._code = aws_lambda.Code.from_asset(str(parameters.function_package))
        gateway_environment = {
            **stores.environment,
            **parameters.security_environment,
            "RIACHO_TABLE_BATCH_BYTES_MAX": str(parameters.table_batch_bytes_max),
        }

        self.gateway = self._function(
            "Gateway",
            handler="lambdas.gateway.handler",
            description="Riacho over HTTP",
            environment=gateway_environment,
            memory_mb=parameters.memory_mb,
            timeout_s=GATEWAY_TIMEOUT_S,
            concurrency=parameters.concurrency or None,
        )
        stores.grant(_role(self.gateway), READ_AND_WRITE)
        stores.grant_topic_keys(_role(self.gateway))

        self.controller = self._function(
            "Controller",
            handler="lambdas.controller.handler",
            description="Probes zones and brings them back in sync",
            environment=stores.environment,
            timeout_s=CONTROLLER_TIMEOUT_S,
        )
        stores.grant(_role(self.controller), (*READ_AND_WRITE, *REMOVE))

        self.compaction = self._function(
            "Compaction",
            handler="lambdas.compaction.handler",
            description="Starts maintenance on EMR Serverless, and reports its end",
            environment=stores.environment,
            timeout_s=COMPACTION_TIMEOUT_S,
        )

        self.connect = self._connect(stores) if parameters.connect_minutes else None

        self.streaming: aws_lambda.Function | None = None
        if parameters.streaming:
            self.streaming = self._function(
                "Streaming",
                handler="lambdas/web",
                description="Riacho over HTTP, with streamed answers",
                environment={**gateway_environment, **_adapter_environment(parameters)},
                memory_mb=parameters.memory_mb,
                timeout_s=STREAMING_TIMEOUT_S,
                concurrency=parameters.concurrency or None,
                layers=[self._adapter()],
            )
            stores.grant(_role(self.streaming), READ_AND_WRITE)
            stores.grant_topic_keys(_role(self.streaming))

    @property
    def all(self) -> Mapping[str, aws_lambda.Function]:
        named = {
            "gateway": self.gateway,
            "controller": self.controller,
            "compaction": self.compaction,
        }
        more = {"connect": self.connect, "streaming": self.streaming}
        return named | {name: each for name, each in more.items() if each is not None}

    def _connect(self, stores: Stores) -> aws_lambda.Function:
        """Return the function that runs connectors; it needs no more of the stores than a gateway.

        What `${aws-secret:…}` of a configuration names is for the operator to grant.
        """
        parameters = self._parameters
        function = self._function(
            "Connect",
            handler="lambdas.connect.handler",
            description="Runs connectors",
            environment={**stores.environment, **parameters.security_environment},
            memory_mb=parameters.memory_mb,
            timeout_s=CONNECT_TIMEOUT_S,
        )
        stores.grant(_role(function), READ_AND_WRITE)
        stores.grant_topic_keys(_role(function))
        return function

    def _function(
        self,
        name: str,
        *,
        handler: str,
        description: str,
        environment: Mapping[str, str],
        timeout_s: int,
        memory_mb: int = SMALL_MEMORY_MB,
        concurrency: int | None = None,
        layers: Sequence[aws_lambda.ILayerVersion] = (),
    ) -> aws_lambda.Function:
        arm = self._parameters.architecture == "arm64"
        log_group = logs.LogGroup(
            self,
            f"{name}Log",
            retention=retention(self._parameters.log_days),
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(
            self, f"{name}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="Log",
                actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[log_group.log_group_arn],
            )
        )
        function = aws_lambda.Function(
            self,
            name,
            description=description,
            code=self._code,
            handler=handler,
            runtime=aws_lambda.Runtime(
                f"python{self._parameters.python}", aws_lambda.RuntimeFamily.PYTHON
            ),
            architecture=(
                aws_lambda.Architecture.ARM_64 if arm else aws_lambda.Architecture.X86_64
            ),
            role=role,
            log_group=log_group,
            environment=dict(environment),
            memory_size=memory_mb,
            timeout=Duration.seconds(timeout_s),
            reserved_concurrent_executions=concurrency,
            layers=list(layers),
        )
        accept(function, "AwsSolutions-L1", "latest python")
        return function

    def _adapter(self) -> aws_lambda.ILayerVersion:
        kind = "Arm64" if self._parameters.architecture == "arm64" else "X86"
        region = Stack.of(self).region
        return aws_lambda.LayerVersion.from_layer_version_arn(
            self,
            "Adapter",
            f"arn:aws:lambda:{region}:{ADAPTER_ACCOUNT}:layer:LambdaAdapterLayer{kind}"
            f":{self._parameters.adapter_layer}",
        )


def logical_id(construct: Construct) -> str:
    """Return the logical id of the main resource of `construct`."""
    return Stack.of(construct).get_logical_id(construct.node.default_child)  # type: ignore[arg-type]


def retention(days: int) -> logs.RetentionDays:
    """Return the enum member for `days`, one of `LOG_DAYS`."""
    members = (
        logs.RetentionDays.ONE_DAY,
        logs.RetentionDays.THREE_DAYS,
        logs.RetentionDays.FIVE_DAYS,
        logs.RetentionDays.ONE_WEEK,
        logs.RetentionDays.TWO_WEEKS,
        logs.RetentionDays.ONE_MONTH,
        logs.RetentionDays.TWO_MONTHS,
        logs.RetentionDays.THREE_MONTHS,
        logs.RetentionDays.SIX_MONTHS,
        logs.RetentionDays.ONE_YEAR,
        logs.RetentionDays.THIRTEEN_MONTHS,
        logs.RetentionDays.TWO_YEARS,
        logs.RetentionDays.FIVE_YEARS,
        logs.RetentionDays.TEN_YEARS,
    )
    return dict(zip(LOG_DAYS, members, strict=True))[days]


def _adapter_environment(parameters: Parameters) -> dict[str, str]:
    # The URL has verified who calls, unless it lets everybody in.
    is_verified = parameters.security and parameters.auth != "none"
    return {
        "RIACHO_ADAPTER_IDENTITY": str(is_verified).lower(),
        "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
        "AWS_LWA_INVOKE_MODE": "response_stream",
        "AWS_LWA_PORT": "8080",
        "AWS_LWA_READINESS_CHECK_PATH": "/ready",
    }


def _role(function: aws_lambda.Function) -> iam.Role:
    assert isinstance(function.role, iam.Role)
    return function.role
