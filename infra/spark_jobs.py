"""EMR Serverless: an application that costs nothing while nothing runs, and its job.

The package is an archive with Riacho and its dependencies, except Spark, which EMR has. It is
unpacked in the working directory of driver and workers, and found by PYTHONPATH; the entry point
is `service/jobs/__main__.py`, unchanged.
"""

from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as aws_lambda
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.functions import logical_id
from infra.parameters import ROOT, Parameters
from infra.reasons import accept
from infra.stores import READ_AND_WRITE, REMOVE, UPLOAD_IN_PARTS, Stores

ENTRY_POINT: Final = ROOT / "service" / "jobs" / "__main__.py"
UNPACKED: Final = "python"
GIB_PER_CORE: Final = 4
IDLE_MINUTES: Final = 1


class SparkJobs(Construct):
    """Where maintenance runs."""

    def __init__(self, scope: Construct, name: str, parameters: Parameters, stores: Stores) -> None:
        super().__init__(scope, name)
        self._stores = stores
        self._parameters = parameters
        self.package = assets.Asset(self, "Package", path=str(parameters.job_package))
        self.entry_point = assets.Asset(self, "EntryPoint", path=str(ENTRY_POINT))
        self.log_bucket = stores.log_bucket(self, "Log")
        self.role = self._role()
        self.application = self._application()

    @property
    def application_id(self) -> str:
        return self.application.attr_application_id

    def let_start(self, function: aws_lambda.Function) -> None:
        """Allow `function` to start runs and query them, and set its environment for that."""
        role = function.role
        assert isinstance(role, iam.Role)
        application = self.application.attr_arn
        role.add_to_policy(
            iam.PolicyStatement(
                sid="Runs",
                actions=["emr-serverless:StartJobRun", "emr-serverless:ListJobRuns"],
                resources=[application],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="Run",
                actions=["emr-serverless:GetJobRun", "emr-serverless:TagResource"],
                resources=[f"{application}/jobruns/*"],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="RunAs",
                actions=["iam:PassRole"],
                resources=[self.role.role_arn],
                conditions={
                    "StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}
                },
            )
        )
        accept(
            role,
            f"AwsSolutions-IAM5[Resource::<{self._name()}.Arn>/jobruns/*]",
            "job runs",
        )
        for variable, value in self._environment().items():
            function.add_environment(variable, value)

    def _environment(self) -> dict[str, str]:
        return {
            "RIACHO_EMR_APPLICATION_ID": self.application_id,
            "RIACHO_EMR_ROLE_ARN": self.role.role_arn,
            "RIACHO_EMR_ENTRY_POINT": self.entry_point.s3_object_url,
            "RIACHO_EMR_ARCHIVES": f"{self.package.s3_object_url}#{UNPACKED}",
            "RIACHO_EMR_LOG_URI": f"s3://{self.log_bucket.bucket_name}/",
            "RIACHO_EMR_SPARK_PARAMS": spark_parameters(self._parameters.emr_python),
        }

    def _application(self) -> emr.CfnApplication:
        arm = self._parameters.architecture == "arm64"
        cores = self._parameters.emr_cores_max
        return emr.CfnApplication(
            self,
            "Application",
            name=f"{self._parameters.name}-jobs",
            type="SPARK",
            release_label=self._parameters.emr_release,
            architecture="ARM64" if arm else "X86_64",
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(
                enabled=True
            ),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{cores} vCPU", memory=f"{cores * GIB_PER_CORE} GB"
            ),
        )

    def _role(self) -> iam.Role:
        stack = Stack.of(self)
        applications = f"arn:{stack.partition}:emr-serverless:{stack.region}:{stack.account}"
        role = iam.Role(
            self,
            "Role",
            description="What maintenance may do",
            assumed_by=iam.ServicePrincipal(
                "emr-serverless.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": f"{applications}:/applications/*"},
                },
            ),
        )
        self._stores.grant(role, (*READ_AND_WRITE, *REMOVE, *UPLOAD_IN_PARTS))
        self._stores.grant_topic_keys(role)
        packages = [
            self.package.bucket.arn_for_objects(each.s3_object_key)
            for each in (self.package, self.entry_point)
        ]
        role.add_to_policy(
            iam.PolicyStatement(sid="Package", actions=["s3:GetObject"], resources=packages)
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="LogFiles",
                actions=["s3:PutObject", "s3:GetObject"],
                resources=[self.log_bucket.arn_for_objects("*")],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="LogBucket", actions=["s3:ListBucket"], resources=[self.log_bucket.bucket_arn]
            )
        )
        bucket = logical_id(self.log_bucket)
        accept(role, f"AwsSolutions-IAM5[Resource::<{bucket}.Arn>/*]", "object keys")
        return role

    def _name(self) -> str:
        return Stack.of(self).get_logical_id(self.application)


def spark_parameters(python: str) -> str:
    """Return the options of spark-submit: which Python, where Riacho is, few workers at first."""
    interpreter = f"/usr/bin/python{python}"
    settings = {
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": interpreter,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": interpreter,
        "spark.emr-serverless.driverEnv.PYTHONPATH": f"./{UNPACKED}",
        "spark.executorEnv.PYSPARK_PYTHON": interpreter,
        "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}",
        "spark.driver.cores": "1",
        # Records are in Python's memory, not the JVM's.
        "spark.driver.memory": "2g",
        "spark.driver.memoryOverhead": "2g",
        "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
        "spark.executor.memoryOverhead": "4g",
        # A run without work is a driver of one core for a minute or two.
        "spark.dynamicAllocation.initialExecutors": "0",
        "spark.dynamicAllocation.minExecutors": "0",
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())
