"""The same gateway as a Fargate service, for sustained load.

Tasks have public addresses but accept connections only from the load balancer. So they reach S3
and DynamoDB through free endpoints and pull the image without a NAT gateway, and only the tasks
and the balancer cost money while idle.

Without a certificate the balancer is inside the network, and speaks plain HTTP there.
"""

from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_certificatemanager as certificates
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as balancing
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.functions import retention
from infra.parameters import ROOT, Parameters
from infra.reasons import accept
from infra.stores import READ_AND_WRITE, REMOVE, Stores

PORT: Final = 8080
CORES: Final = 1024
MEMORY_MIB: Final = 2048
GROWTH_MAX: Final = 4
BUSY_PERCENT: Final = 60


class Containers(Construct):
    """A cluster, a service of `containers` tasks or up to four times as many, a balancer."""

    def __init__(self, scope: Construct, name: str, parameters: Parameters, stores: Stores) -> None:
        super().__init__(scope, name)
        self._parameters = parameters
        self.network = self._network()
        self.task = self._task(stores)
        self.service = self._service()
        self.balancer = self._balancer()

    def _network(self) -> ec2.Vpc:
        network = ec2.Vpc(
            self,
            "Network",
            max_azs=3,
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "Table": ec2.GatewayVpcEndpointOptions(
                    service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
                ),
            },
            # The default group is not used, and closing it needs a function with more permissions.
            restrict_default_security_group=False,
        )
        accept(network, "AwsSolutions-VPC7", "flow logs")
        return network

    def _task(self, stores: Stores) -> ecs.FargateTaskDefinition:
        arm = self._parameters.architecture == "arm64"
        platform = ecr_assets.Platform.LINUX_ARM64 if arm else ecr_assets.Platform.LINUX_AMD64
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=CORES,
            memory_limit_mib=MEMORY_MIB,
            runtime_platform=ecs.RuntimePlatform(
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
                cpu_architecture=ecs.CpuArchitecture.ARM64 if arm else ecs.CpuArchitecture.X86_64,
            ),
            volumes=[ecs.Volume(name="scratch")],
        )
        log_group = logs.LogGroup(
            self,
            "Log",
            retention=retention(self._parameters.log_days),
            removal_policy=RemovalPolicy.DESTROY,
        )
        container = task.add_container(
            "gateway",
            image=ecs.ContainerImage.from_asset(str(ROOT), platform=platform),
            environment={
                **stores.environment,
                **self._parameters.security_environment,
                "RIACHO_LINGER_MIN_MS": str(self._parameters.linger_min_ms),
                "RIACHO_LOG_FORMAT": "json",
            },
            logging=ecs.LogDrivers.aws_logs(
                stream_prefix="gateway",
                log_group=log_group,
            ),
            port_mappings=[ecs.PortMapping(container_port=PORT)],
            readonly_root_filesystem=True,
            stop_timeout=Duration.seconds(60),
        )
        container.add_mount_points(
            ecs.MountPoint(
                container_path="/tmp",  # noqa: S108 - Of the container, its own.
                source_volume="scratch",
                read_only=False,
            )
        )
        role = task.task_role
        stores.grant(role, (*READ_AND_WRITE, *REMOVE))  # type: ignore[arg-type]
        stores.grant_topic_keys(role)  # type: ignore[arg-type]
        accept(task, "AwsSolutions-ECS2", "environment")
        accept(task, "AwsSolutions-IAM5[Resource::*]", "registry token")
        return task

    def _service(self) -> ecs.FargateService:
        cluster = ecs.Cluster(self, "Cluster", vpc=self.network)
        accept(cluster, "AwsSolutions-ECS4", "service metrics")
        service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self.task,
            desired_count=self._parameters.containers,
            assign_public_ip=True,
            min_healthy_percent=100,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            health_check_grace_period=Duration.seconds(60),
        )
        scaling = service.auto_scale_task_count(
            min_capacity=self._parameters.containers,
            max_capacity=self._parameters.containers * GROWTH_MAX,
        )
        scaling.scale_on_cpu_utilization("Busy", target_utilization_percent=BUSY_PERCENT)
        return service

    def _balancer(self) -> balancing.ApplicationLoadBalancer:
        certificate = self._parameters.certificate
        balancer = balancing.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=self.network,
            internet_facing=bool(certificate),
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            # Longer than the longest wait of a fetch.
            idle_timeout=Duration.seconds(120),
            drop_invalid_header_fields=True,
        )
        listener = balancer.add_listener(
            "Listener",
            open=False,
            port=443 if certificate else 80,
            protocol=(
                balancing.ApplicationProtocol.HTTPS
                if certificate
                else balancing.ApplicationProtocol.HTTP
            ),
            certificates=[
                certificates.Certificate.from_certificate_arn(self, "Certificate", certificate)
            ]
            if certificate
            else None,
            ssl_policy=balancing.SslPolicy.RECOMMENDED_TLS if certificate else None,
        )
        listener.add_targets(
            "Gateways",
            port=PORT,
            protocol=balancing.ApplicationProtocol.HTTP,
            targets=[self.service],
            deregistration_delay=Duration.seconds(60),
            health_check=balancing.HealthCheck(path="/ready", interval=Duration.seconds(10)),
        )
        if certificate:
            listener.connections.allow_default_port_from_any_ipv4("HTTPS")
        else:
            listener.connections.allow_default_port_from(
                ec2.Peer.ipv4(self.network.vpc_cidr_block), "the network"
            )
        accept(balancer, "AwsSolutions-ELB2", "access logs")
        accept(balancer, "AwsSolutions-EC23", "closed to the world")
        return balancer
