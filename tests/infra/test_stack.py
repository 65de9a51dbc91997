"""The synthesized templates: what they hold, what they allow, and that they can be deployed.

One file, because the CDK takes seconds to start and files are what test processes share out.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Match, Template
from cdk_nag import AwsSolutionsChecks

from infra.app import build
from infra.bundle import PACKAGES
from infra.parameters import ROOT
from infra.reasons import REASONS
from infra.stores import TABLE_ACTIONS
from riacho import Admin, Consumer, Producer
from storage.errors import Rejected
from tests.docs.markdown import blocks
from tests.infra.local_deployment import MISSING, SERVICES, LocalAws, deploy, template_of
from tests.storage.helpers import servers

pytestmark = pytest.mark.slow

STACK = "Riacho"
PLAIN: dict[str, str] = {}
FULL = {
    "zones": "a,b,c",
    "auth": "jwt",
    "jwt_issuer": "https://issuer.example.org",
    "jwt_audience": "riacho",
    "super_users": "arn:aws:iam::123456789012:role/admin,User:root",
    "topic_keys": "arn:aws:kms:us-east-1:123456789012:key/0a-1b",
    "streaming": "true",
    "connect_minutes": "1",
    "containers": "2",
    "certificate": "arn:aws:acm:us-east-1:123456789012:certificate/c",
    "alarm_email": "somebody@example.org",
    "architecture": "arm64",
    "concurrency": "100",
    "log_days": "7",
}
OPEN = {
    "auth": "none",
    "security": "off",
    "kms": "false",
    "keep": "false",
    "alarms": "false",
    "containers": "1",
    "maintain_minutes": "0",
}
LOCAL = {"security": "off"}
"""For a local AWS, which tells functions nothing of their callers."""
VARIANTS = {"plain": PLAIN, "full": FULL, "open": OPEN, "local": LOCAL}

each_variant = pytest.mark.parametrize("variant", VARIANTS)

Assemblies = dict[str, Path]


@pytest.fixture(scope="module")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> Assemblies:
    """Every variant, synthesized; which fails if cdk-nag has anything to say."""
    folder = tmp_path_factory.mktemp("assemblies")
    package, job = folder / "package", folder / "job.tgz"
    for each in PACKAGES:  # What these import comes from the process that runs them.
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / each, package / each, ignore=ignored)
    job.write_bytes(b"stands for the archive")
    stand_ins = {"function_package": str(package), "job_package": str(job)}
    for name, context in VARIANTS.items():
        build(folder / name, {**context, **stand_ins}).synth()
    return {name: folder / name for name in VARIANTS}


@pytest.fixture(scope="module")
def plain(assemblies: Assemblies) -> Template:
    return Template.from_json(template_of(assemblies["plain"], STACK))


@pytest.fixture(scope="module")
def full(assemblies: Assemblies) -> Template:
    return Template.from_json(template_of(assemblies["full"], STACK))


def resources(assembly: Path, kind: str) -> dict[str, dict[str, Any]]:
    found = template_of(assembly, STACK)["Resources"]
    return {name: each["Properties"] for name, each in found.items() if each["Type"] == kind}


def statements(assembly: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, policy in resources(assembly, "AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            yield name, statement


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_a_zone_is_a_bucket_that_keeps_what_it_holds(full: Template) -> None:
    zones = full.find_resources(
        "AWS::S3::Bucket",
        {
            "DeletionPolicy": "Retain",
            "Properties": {
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [
                        {
                            "BucketKeyEnabled": True,
                            "ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"},
                        }
                    ]
                },
                "LifecycleConfiguration": Match.object_equals(
                    {
                        "Rules": [
                            {
                                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                                "Status": "Enabled",
                            }
                        ]
                    }
                ),
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
                "VersioningConfiguration": Match.absent(),
            },
        },
    )
    assert sorted(name[: len("StoresZonea")] for name in zones) == [
        "StoresZonea",
        "StoresZoneb",
        "StoresZonec",
    ]


def test_who_uses_the_stores_may_use_their_key(assemblies: Assemblies, full: Template) -> None:
    [key] = full.find_resources("AWS::KMS::Key", {"Properties": {"EnableKeyRotation": True}})
    users = {"Objects": set[str](), "Key": set[str]()}
    for name, statement in statements(assemblies["full"]):
        if statement.get("Sid") in users:
            users[statement["Sid"]].add(name)

    assert users["Key"] == users["Objects"]
    assert not list(resources(assemblies["open"], "AWS::KMS::Key"))
    for variant in ("plain", "full"):
        for _, statement in statements(assemblies[variant]):
            if statement.get("Sid") == "Key":
                [via] = statement["Condition"]["StringEquals"].values()
                assert [json.dumps(each).count("dynamodb.") for each in via] == [0, 1]
    full.has_resource_properties(
        "AWS::DynamoDB::Table",
        {
            "SSESpecification": {
                "KMSMasterKeyId": {"Fn::GetAtt": [key, "Arn"]},
                "SSEEnabled": True,
                "SSEType": "KMS",
            }
        },
    )


@each_variant
def test_every_bucket_is_for_tls_only(assemblies: Assemblies, variant: str) -> None:
    buckets = resources(assemblies[variant], "AWS::S3::Bucket")
    policies = resources(assemblies[variant], "AWS::S3::BucketPolicy").values()

    refused = {
        policy["Bucket"]["Ref"]
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    }
    assert refused == set(buckets)


def test_the_table_is_what_the_store_expects(plain: Template) -> None:
    plain.has_resource(
        "AWS::DynamoDB::Table",
        {
            "DeletionPolicy": "Retain",
            "Properties": Match.object_like(
                {
                    "BillingMode": "PAY_PER_REQUEST",
                    "DeletionProtectionEnabled": True,
                    "KeySchema": [
                        {"AttributeName": "pk", "KeyType": "HASH"},
                        {"AttributeName": "sk", "KeyType": "RANGE"},
                    ],
                    "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
                }
            ),
        },
    )


def test_functions_know_where_everything_is(full: Template) -> None:
    stores = {"RIACHO_ZONES": Match.any_value(), "RIACHO_METADATA": Match.any_value()}
    security = {
        "RIACHO_SECURITY": "on",
        "RIACHO_SUPER_USERS": "User:arn:aws:iam::123456789012:role/admin;User:root",
        "RIACHO_JWT_ISSUER": FULL["jwt_issuer"],
        "RIACHO_JWT_AUDIENCE": "riacho",
        "RIACHO_JWT_PRINCIPAL_CLAIM": "sub",
    }
    emr = ("APPLICATION_ID", "ROLE_ARN", "ENTRY_POINT", "ARCHIVES", "LOG_URI", "SPARK_PARAMS")
    variables = {
        "lambdas.gateway.handler": {
            **stores,
            **security,
            "RIACHO_TABLE_BATCH_BYTES_MAX": "4096",
        },
        "lambdas.controller.handler": stores,
        "lambdas.connect.handler": {**stores, **security},
        "lambdas.compaction.handler": {
            **stores,
            **{f"RIACHO_EMR_{name}": Match.any_value() for name in emr},
        },
        "lambdas/web": {
            **stores,
            **security,
            "RIACHO_ADAPTER_IDENTITY": "true",
            "RIACHO_TABLE_BATCH_BYTES_MAX": "4096",
            "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
            "AWS_LWA_INVOKE_MODE": "response_stream",
            "AWS_LWA_PORT": "8080",
            "AWS_LWA_READINESS_CHECK_PATH": "/ready",
        },
    }
    full.resource_count_is("AWS::Lambda::Function", len(variables))
    for handler, expected in variables.items():
        full.has_resource_properties(
            "AWS::Lambda::Function",
            {
                "Handler": handler,
                "Runtime": "python3.13",
                "Architectures": ["arm64"],
                "Environment": {"Variables": expected},
            },
        )


@each_variant
def test_handlers_exist(assemblies: Assemblies, variant: str) -> None:
    for function in resources(assemblies[variant], "AWS::Lambda::Function").values():
        path = function["Handler"].removesuffix(".handler").replace(".", "/")
        assert any((ROOT / f"{path}{suffix}").is_file() for suffix in ("", ".py", ".sh")), path


@each_variant
def test_gateways_are_closed_unless_somebody_insists(assemblies: Assemblies, variant: str) -> None:
    security = [
        function["Environment"]["Variables"].get("RIACHO_SECURITY")
        for function in resources(assemblies[variant], "AWS::Lambda::Function").values()
        if function["Handler"] in ("lambdas.gateway.handler", "lambdas/web")
    ]
    for task in resources(assemblies[variant], "AWS::ECS::TaskDefinition").values():
        variables = task["ContainerDefinitions"][0]["Environment"]
        security += [each["Value"] for each in variables if each["Name"] == "RIACHO_SECURITY"]
        assert any(each["Name"] == "RIACHO_INSECURE" for each in variables) is (variant == "open")

    assert set(security) == {"off" if VARIANTS[variant].get("security") == "off" else "on"}


def test_the_doors_are_closed_unless_they_are_asked_to_be_open(
    assemblies: Assemblies, plain: Template, full: Template
) -> None:
    plain.has_resource_properties("AWS::Lambda::Url", {"AuthType": "AWS_IAM"})
    plain.has_resource_properties("AWS::ApiGatewayV2::Route", {"AuthorizationType": "AWS_IAM"})
    full.has_resource_properties(
        "AWS::Lambda::Url", {"AuthType": "AWS_IAM", "InvokeMode": "RESPONSE_STREAM"}
    )
    full.has_resource_properties("AWS::ApiGatewayV2::Route", {"AuthorizationType": "JWT"})
    full.has_resource_properties(
        "AWS::ApiGatewayV2::Authorizer",
        {"JwtConfiguration": {"Audience": ["riacho"], "Issuer": FULL["jwt_issuer"]}},
    )
    for variant, assembly in assemblies.items():
        permissions = resources(assembly, "AWS::Lambda::Permission").values()
        is_open = any(permission["Principal"] == "*" for permission in permissions)
        assert is_open is (variant == "open")
    [url] = resources(assemblies["open"], "AWS::Lambda::Url").values()
    [route] = resources(assemblies["open"], "AWS::ApiGatewayV2::Route").values()
    assert (url["AuthType"], route["AuthorizationType"]) == ("NONE", "NONE")


def test_clocks_call_functions(assemblies: Assemblies, plain: Template) -> None:
    for schedule in ("rate(1 minute)", "rate(1 hour)"):
        plain.has_resource_properties("AWS::Events::Rule", {"ScheduleExpression": schedule})
    plain.has_resource_properties(
        "AWS::Events::Rule",
        {
            "EventPattern": {
                "source": ["aws.emr-serverless"],
                "detail-type": ["EMR Serverless Job Run State Change"],
                "detail": {
                    "applicationId": [Match.any_value()],
                    "state": ["SUCCESS", "FAILED", "CANCELLED"],
                },
            }
        },
    )
    plain.resource_count_is("AWS::Events::Rule", 3)
    assert len(resources(assemblies["open"], "AWS::Events::Rule")) == 2


def test_the_application_for_jobs_costs_nothing_by_itself(plain: Template) -> None:
    plain.has_resource_properties(
        "AWS::EMRServerless::Application",
        {
            "Type": "SPARK",
            "InitialCapacity": Match.absent(),
            "AutoStopConfiguration": {"Enabled": True, "IdleTimeoutMinutes": 1},
            "MaximumCapacity": {"Cpu": "16 vCPU", "Memory": "64 GB"},
        },
    )


def test_the_package_of_a_job_is_one_that_spark_unpacks(assemblies: Assemblies) -> None:
    files = json.loads((assemblies["plain"] / f"{STACK}.assets.json").read_text())["files"]
    names = {
        each["displayName"]: destination["objectKey"]
        for each in files.values()
        for destination in each["destinations"].values()
    }

    assert names["Jobs/Package"].endswith(".tgz")
    assert names["Jobs/EntryPoint"].endswith(".py")


def test_silence_raises_an_alarm(full: Template) -> None:
    full.has_resource_properties(
        "AWS::CloudWatch::Alarm",
        {
            "Namespace": "Riacho",
            "MetricName": "ControllerTick",
            "ComparisonOperator": "LessThanThreshold",
            "TreatMissingData": "breaching",
            "AlarmActions": [Match.any_value()],
        },
    )
    full.has_resource_properties(
        "AWS::CloudWatch::Alarm",
        {
            "Namespace": "Riacho",
            "MetricName": "SecondsSinceSuccess",
            "Dimensions": [{"Name": "Job", "Value": "maintain"}],
            "Threshold": 3 * 3600,
            "Period": 3 * 3600,
            "TreatMissingData": "breaching",
        },
    )
    functions = 5
    for metric in ("Errors", "Throttles"):
        alarms = full.find_resources(
            "AWS::CloudWatch::Alarm",
            {"Properties": {"Namespace": "AWS/Lambda", "MetricName": metric}},
        )
        assert len(alarms) == functions


def test_logs_are_kept_as_long_as_was_said(assemblies: Assemblies) -> None:
    for variant, days in (("plain", 30), ("full", 7)):
        groups = resources(assemblies[variant], "AWS::Logs::LogGroup").values()
        assert {group["RetentionInDays"] for group in groups} == {days}


def test_containers_have_no_way_in_but_the_balancer(assemblies: Assemblies, full: Template) -> None:
    full.has_resource_properties(
        "AWS::ECS::TaskDefinition",
        {"ContainerDefinitions": [Match.object_like({"ReadonlyRootFilesystem": True})]},
    )
    full.resource_count_is("AWS::EC2::NatGateway", 0)
    for variant, scheme, port in (
        ("full", "internet-facing", 443),
        ("open", "internal", 80),
    ):
        template = Template.from_json(template_of(assemblies[variant], STACK))
        template.has_resource_properties(
            "AWS::ElasticLoadBalancingV2::LoadBalancer", {"Scheme": scheme}
        )
        template.has_resource_properties("AWS::ElasticLoadBalancingV2::Listener", {"Port": port})
        [let_in] = [
            rule["CidrIp"]
            for group in resources(assemblies[variant], "AWS::EC2::SecurityGroup").values()
            for rule in group.get("SecurityGroupIngress", [])
        ]
        assert (let_in == "0.0.0.0/0") is (scheme == "internet-facing")


@each_variant
def test_no_permission_has_a_wildcard_without_a_reason(
    assemblies: Assemblies, variant: str
) -> None:
    assembly = assemblies[variant]
    metadata = json.loads((assembly / f"{STACK}.metadata.json").read_text())
    accepted = json.dumps(metadata)
    zones = len(resources(assembly, "AWS::S3::Bucket")) - 1

    for name, statement in statements(assembly):
        assert statement["Effect"] == "Allow"
        assert not [action for action in listed(statement["Action"]) if "*" in action], name
        wild = [each for each in listed(statement["Resource"]) if "*" in json.dumps(each)]
        match statement.get("Sid"):
            case "Objects":
                assert len(wild) == zones
                assert REASONS["object keys"] in accepted
            case "LogFiles":
                assert len(wild) == 1
            case "Run":
                assert REASONS["job runs"] in accepted
            case _ if wild:
                assert statement["Action"] == "ecr:GetAuthorizationToken"
                assert REASONS["registry token"] in accepted
    assert not resources(assembly, "AWS::IAM::ManagedPolicy")
    for role in resources(assembly, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role


def test_only_those_who_must_can_remove_objects(assemblies: Assemblies) -> None:
    able = {
        name.split("Default")[0]
        for name, statement in statements(assemblies["full"])
        if "s3:DeleteObject" in listed(statement["Action"])
    }

    assert able == {
        "FunctionsControllerRole",
        "JobsRole",
        "ContainersTaskTaskRole",
    }


def test_keys_of_topics_are_for_those_who_open_records(assemblies: Assemblies) -> None:
    able = set()
    for name, statement in statements(assemblies["full"]):
        if statement.get("Sid") == "TopicKeys":
            able.add(name.split("Default")[0])
            assert statement["Resource"] == FULL["topic_keys"]
            assert statement["Action"] == ["kms:Encrypt", "kms:Decrypt"]

    assert able == {
        "FunctionsConnectRole",
        "FunctionsGatewayRole",
        "FunctionsStreamingRole",
        "JobsRole",
        "ContainersTaskTaskRole",
    }


def test_the_table_may_be_used_as_the_documentation_says() -> None:
    [policy] = blocks(ROOT / "docs/aws.md", "json")
    allowed = [each["Action"] for each in json.loads(policy.text)["Statement"]]

    assert list(TABLE_ACTIONS) in allowed


def test_cfn_lint_has_nothing_to_say(assemblies: Assemblies) -> None:
    # W3005: the CDK names dependencies that are known anyway.
    command = [Path(sys.executable).parent / "cfn-lint", "--ignore-checks", "W3005", "--"]
    template = assemblies["full"] / f"{STACK}.template.json"

    told = subprocess.run([*command, template], capture_output=True, text=True, check=False)

    assert (told.stdout, told.returncode) == ("", 0)


def test_a_finding_without_a_reason_fails_the_synthesis(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    s3.Bucket(Stack(app, "Careless"), "Bucket")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))

    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with servers.ministack(SERVICES) as url:
        aws = LocalAws(url)
        yield aws
        aws.close()


@pytest.fixture(scope="module")
def outputs(aws: LocalAws, assemblies: Assemblies) -> dict[str, str]:
    return deploy(aws, assemblies["local"], STACK)


@pytest.mark.aws
def test_the_template_is_deployed_but_for_what_the_local_aws_lacks(
    aws: LocalAws, outputs: dict[str, str], assemblies: Assemblies
) -> None:
    made = aws["cloudformation"].describe_stack_resources(StackName=STACK)["StackResources"]
    wanted = template_of(assemblies["local"], STACK)["Resources"]

    assert {each["ResourceStatus"] for each in made} == {"CREATE_COMPLETE"}
    lacking = wanted.keys() - {each["LogicalResourceId"] for each in made}
    assert {wanted[name]["Type"] for name in lacking} == MISSING

    table = aws["dynamodb"].describe_table(TableName=outputs["Table"])["Table"]
    assert [each["AttributeName"] for each in table["KeySchema"]] == ["pk", "sk"]
    rules = aws["events"].list_rules()["Rules"]
    assert sorted(each.get("ScheduleExpression", "") for each in rules) == [
        "",
        "rate(1 hour)",
        "rate(1 minute)",
    ]


@pytest.mark.aws
def test_the_deployed_controller_ticks(aws: LocalAws, outputs: dict[str, str]) -> None:
    answer = aws["lambda"].invoke(FunctionName=outputs["ControllerFunction"], Payload=b"{}")

    assert "FunctionError" not in answer
    assert json.loads(answer["Payload"].read())["controller"] is True


@pytest.mark.aws
def test_records_go_through_the_deployed_doors(aws: LocalAws, outputs: dict[str, str]) -> None:
    api = httpx.URL(outputs["Api"]).host.split(".")[0]
    url = httpx.URL(outputs["Url"]).host.split(".")[0]
    topics = f"{aws.url}/_aws/execute-api/{api}/$default/v1/topics"
    records = f"{aws.url}/_aws/lambda-url/{url}/v1/topics/t/partitions/0/records"
    with httpx.Client(timeout=120) as client:
        client.post(topics, json={"name": "t"}).raise_for_status()
        body = {"records": [{"value": "through the API"}, {"value": "olá"}]}
        client.post(f"{topics}/t/records", json=body).raise_for_status()
        assert client.get(records).status_code == 403
        read = client.get(records, headers=aws.signature("GET", records)).raise_for_status().json()

    assert [record["value"] for record in read["records"]] == ["through the API", "olá"]


@pytest.mark.aws
def test_the_sdk_signs_what_it_sends(
    aws: LocalAws, outputs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    door = f"{aws.url}/_aws/lambda-url/{httpx.URL(outputs['Url']).host.split('.')[0]}"
    with Admin(door) as stranger, pytest.raises(Rejected, match="RIACHO_AUTH"):
        stranger.create_topic("signed")
    monkeypatch.setenv("RIACHO_AUTH", "aws:lambda")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", servers.REGION)
    with Admin(door) as admin, Producer(door) as producer, Consumer(door) as consumer:
        admin.create_topic("signed")
        producer.send("signed", "olá", key="a b/c").result()
        consumer.assign([("signed", 0)])
        consumer.seek("signed", 0, 0)
        [record] = consumer.poll(timeout_ms=10_000)

    assert (record.key_text(), record.text()) == ("a b/c", "olá")
