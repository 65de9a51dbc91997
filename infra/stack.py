"""One deployment, assembled."""

from typing import Any

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.containers import Containers
from infra.doors import Doors
from infra.functions import Functions
from infra.parameters import Parameters
from infra.schedules import Schedules
from infra.spark_jobs import SparkJobs
from infra.stores import Stores
from infra.watching import Watching


class RiachoStack(Stack):
    """Stores, functions, doors, clocks, jobs, alarms; with `containers` a service, too."""

    def __init__(self, scope: Construct, parameters: Parameters, **options: Any) -> None:
        super().__init__(
            scope,
            parameters.name,
            description="Riacho: event streaming without brokers",
            termination_protection=parameters.keep,
            **options,
        )
        self.stores = Stores(self, "Stores", parameters)
        self.functions = Functions(self, "Functions", parameters, self.stores)
        self.doors = Doors(self, "Doors", parameters, self.functions)
        self.jobs = SparkJobs(self, "Jobs", parameters, self.stores)
        self.jobs.let_start(self.functions.compaction)
        Schedules(self, "Schedules", parameters, self.functions, self.jobs)
        if parameters.alarms:
            Watching(
                self,
                "Watching",
                parameters,
                stores=self.stores,
                functions=self.functions,
                doors=self.doors,
            )
        if parameters.containers:
            containers = Containers(self, "Containers", parameters, self.stores)
            self._output("Balancer", containers.balancer.load_balancer_dns_name)
        self._outputs()

    def _outputs(self) -> None:
        self._output("Api", self.doors.api.api_endpoint)
        self._output("Url", self.doors.url.url)
        self._output("Zones", self.stores.environment["RIACHO_ZONES"])
        self._output("Metadata", self.stores.environment["RIACHO_METADATA"])
        self._output("Table", self.stores.table.table_name)
        self._output("JobApplication", self.jobs.application_id)
        self._output("JobRole", self.jobs.role.role_arn)
        for name, function in self.functions.all.items():
            self._output(f"{name.capitalize()}Function", function.function_name)

    def _output(self, name: str, value: str) -> None:
        CfnOutput(self, name, value=value)
