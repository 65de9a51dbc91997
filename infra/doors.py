"""Where requests come in: an HTTP API, and a Function URL beside it.

Both lead to the same gateway; with `streaming` the URL leads to the one that streams. Signed
requests are the default; tokens are checked by the HTTP API, and `none` leaves all of it to Riacho.
"""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as aws_lambda
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.functions import GATEWAY_TIMEOUT_S, Functions, retention
from infra.parameters import Parameters
from infra.reasons import accept

ACCESS_LOG_FIELDS = (
    "requestId",
    "requestTime",
    "httpMethod",
    "path",
    "status",
    "responseLength",
    "responseLatency",
    "integrationErrorMessage",
)


class Doors(Construct):
    """The addresses of a deployment."""

    def __init__(
        self, scope: Construct, name: str, parameters: Parameters, functions: Functions
    ) -> None:
        super().__init__(scope, name)
        self.api = self._api(parameters, functions.gateway)
        self.url = self._url(parameters, functions.streaming or functions.gateway)

    def _api(self, parameters: Parameters, gateway: aws_lambda.Function) -> apigateway.HttpApi:
        api = apigateway.HttpApi(
            self,
            "Api",
            description=f"{parameters.name}: Riacho over HTTP",
            create_default_stage=False,
            default_authorizer=_authorizer(parameters),
            default_integration=integrations.HttpLambdaIntegration(
                "Gateway",
                gateway,
                payload_format_version=apigateway.PayloadFormatVersion.VERSION_2_0,
                timeout=Duration.seconds(GATEWAY_TIMEOUT_S),
            ),
        )
        log_group = logs.LogGroup(
            self,
            "AccessLog",
            retention=retention(parameters.log_days),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.stage = apigateway.CfnStage(
            self,
            "Stage",
            api_id=api.api_id,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=log_group.log_group_arn,
                format=_access_log_format(),
            ),
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                detailed_metrics_enabled=False
            ),
        )
        if parameters.auth == "none":
            accept(api, "AwsSolutions-APIG4", "open on purpose")
        return api

    def _url(self, parameters: Parameters, function: aws_lambda.Function) -> aws_lambda.FunctionUrl:
        auth, mode = aws_lambda.FunctionUrlAuthType, aws_lambda.InvokeMode
        return function.add_function_url(
            auth_type=auth.NONE if parameters.auth == "none" else auth.AWS_IAM,
            invoke_mode=mode.RESPONSE_STREAM if parameters.streaming else mode.BUFFERED,
        )


def _authorizer(parameters: Parameters) -> apigateway.IHttpRouteAuthorizer | None:
    if parameters.auth == "none":
        return None
    if parameters.auth == "iam":
        return authorizers.HttpIamAuthorizer()
    return authorizers.HttpJwtAuthorizer(
        "Tokens", parameters.jwt_issuer, jwt_audience=parameters.jwt_audience.split(",")
    )


def _access_log_format() -> str:
    return "{" + ",".join(f'"{each}":"$context.{each}"' for each in ACCESS_LOG_FIELDS) + "}"
