"""A synthesized template on a local AWS: what `cdk bootstrap` and `cdk deploy` would do there."""

import io
import json
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from tests.storage.helpers import servers

SERVICES: Final = (
    "apigateway,cloudformation,cloudwatch,dynamodb,events,iam,kms,lambda,logs,s3,ssm,sts"
)
MISSING: Final = frozenset({"AWS::EMRServerless::Application"})
"""What ministack does not know. docs/deploy.md says so, too."""

_BOOTSTRAP_VERSION: Final = "31"


class LocalAws:
    """Clients of a local AWS."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = boto3.Session(
            aws_access_key_id=servers.ACCESS_KEY,
            aws_secret_access_key=servers.SECRET_KEY,
            region_name=servers.REGION,
        )
        self._clients: dict[str, Any] = {}

    def __getitem__(self, service: str) -> Any:
        if service not in self._clients:
            made = self._session.client(service, endpoint_url=self.url)  # type: ignore[call-overload]
            self._clients[service] = made
        return self._clients[service]

    def signature(self, method: str, url: str) -> dict[str, str]:
        """Return the headers that let a request without a body through a Function URL."""
        request = AWSRequest(method=method, url=url)
        signer = SigV4Auth(self._session.get_credentials(), "lambda", servers.REGION)
        signer.add_auth(request)
        return dict(request.headers.items())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def deploy(aws: LocalAws, assembly: Path, stack: str) -> dict[str, str]:
    """Deploy `stack` but for what is `MISSING`; return its outputs."""
    account = aws["sts"].get_caller_identity()["Account"]
    _publish(aws, assembly, stack, f"cdk-hnb659fds-assets-{account}-{servers.REGION}")
    version = "/cdk-bootstrap/hnb659fds/version"
    aws["ssm"].put_parameter(Name=version, Value=_BOOTSTRAP_VERSION, Type="String")
    template = without(template_of(assembly, stack), MISSING)
    cloudformation = aws["cloudformation"]
    cloudformation.create_stack(
        StackName=stack, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"]
    )
    waiter = cloudformation.get_waiter("stack_create_complete")
    waiter.wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    [made] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    return {each["OutputKey"]: each["OutputValue"] for each in made["Outputs"]}


def template_of(assembly: Path, stack: str) -> dict[str, Any]:
    template: dict[str, Any] = json.loads((assembly / f"{stack}.template.json").read_text())
    return template


def without(template: dict[str, Any], types: Collection[str]) -> dict[str, Any]:
    """Return `template` with resources of `types` gone, and their attributes made up."""
    gone = {name for name, each in template["Resources"].items() if each["Type"] in types}

    def mended(value: Any) -> Any:
        match value:
            case {"Fn::GetAtt": [name, _]} if name in gone:
                return "made-up"
            case dict():
                return {key: mended(each) for key, each in value.items()}
            case list():
                return [mended(each) for each in value]
            case _:
                return value

    kept = {name: each for name, each in template["Resources"].items() if name not in gone}
    return {**mended(template), "Resources": mended(kept)}


def _publish(aws: LocalAws, assembly: Path, stack: str, bucket: str) -> None:
    aws["s3"].create_bucket(Bucket=bucket)
    files = json.loads((assembly / f"{stack}.assets.json").read_text())["files"]
    for each in files.values():
        source = assembly / each["source"]["path"]
        body = _zipped(source) if source.is_dir() else source.read_bytes()
        for destination in each["destinations"].values():
            aws["s3"].put_object(Bucket=bucket, Key=destination["objectKey"], Body=body)


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return buffer.getvalue()
