"""The stores: a bucket for each zone, the table, and the permissions on them.

- No lifecycle rule deletes a complete object: only the index knows which objects are unused, and
  a sweep deletes them. Only parts of unfinished uploads expire.
- Buckets are not versioned: versions would keep objects that a sweep has deleted, and objects are
  never overwritten.
"""

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parameters import Parameters
from infra.reasons import accept

READ_AND_WRITE: Final = ("s3:GetObject", "s3:PutObject")
REMOVE: Final = ("s3:DeleteObject",)
UPLOAD_IN_PARTS: Final = ("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")

TABLE_ACTIONS: Final = (
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:Query",
    "dynamodb:PutItem",
    "dynamodb:DeleteItem",
    "dynamodb:ConditionCheckItem",
)
"""Transactions need no separate permission: DynamoDB checks those of the actions in them."""

KEY_ACTIONS: Final = ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:DescribeKey")


class Stores(Construct):
    """The state of a deployment; everything else can be deleted and deployed again."""

    def __init__(self, scope: Construct, name: str, parameters: Parameters) -> None:
        super().__init__(scope, name)
        self._kept = RemovalPolicy.RETAIN if parameters.keep else RemovalPolicy.DESTROY
        self._log_days = parameters.log_days
        self._topic_keys = list(parameters.topic_keys)
        self.key = self._key() if parameters.kms else None
        self.buckets = {zone: self._bucket(zone) for zone in parameters.zones}
        self.table = self._table(protected=parameters.keep)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name the stores."""
        zones = ",".join(f"{zone}=s3://{b.bucket_name}" for zone, b in self.buckets.items())
        return {"RIACHO_ZONES": zones, "RIACHO_METADATA": f"dynamodb://{self.table.table_name}"}

    def grant(self, role: iam.Role, actions: Sequence[str]) -> None:
        """Allow `role` to use the table, list the buckets, and do `actions` with their objects."""
        every_object = [bucket.arn_for_objects("*") for bucket in self.buckets.values()]
        buckets = [bucket.bucket_arn for bucket in self.buckets.values()]
        statements = [
            iam.PolicyStatement(sid="Objects", actions=list(actions), resources=every_object),
            # Serving lists nothing. Without this permission S3 answers "denied" for objects that
            # do not exist.
            iam.PolicyStatement(sid="Buckets", actions=["s3:ListBucket"], resources=buckets),
            iam.PolicyStatement(
                sid="Table", actions=list(TABLE_ACTIONS), resources=[self.table.table_arn]
            ),
        ]
        if self.key is not None:
            statements.append(
                iam.PolicyStatement(
                    sid="Key",
                    actions=list(KEY_ACTIONS),
                    resources=[self.key.key_arn],
                    # Only for what the two stores encrypt, never by a call of its own.
                    conditions={"StringEquals": {"kms:ViaService": self._encrypting}},
                )
            )
        for statement in statements:
            role.add_to_policy(statement)
        for bucket in self.buckets.values():
            accept(role, f"AwsSolutions-IAM5[Resource::<{_id(bucket)}.Arn>/*]", "object keys")

    def grant_topic_keys(self, role: iam.Role) -> None:
        """Allow `role` to wrap and unwrap keys of encrypted topics, naming the topic each time."""
        if self._topic_keys:
            role.add_to_policy(
                iam.PolicyStatement(
                    sid="TopicKeys",
                    actions=["kms:Encrypt", "kms:Decrypt"],
                    resources=self._topic_keys,
                    conditions={"Null": {"kms:EncryptionContext:riacho:topic": "false"}},
                )
            )

    @property
    def _encrypting(self) -> list[str]:
        stack = Stack.of(self)
        return [f"{each}.{stack.region}.{stack.url_suffix}" for each in ("s3", "dynamodb")]

    def log_bucket(self, scope: Construct, name: str) -> s3.Bucket:
        """Return a bucket for logs of jobs, whose objects expire."""
        bucket = s3.Bucket(
            scope,
            name,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            removal_policy=self._kept,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(self._log_days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )
        accept(bucket, "AwsSolutions-S1", "access logs")
        return bucket

    def _key(self) -> kms.Key:
        return kms.Key(
            self,
            "Key",
            description="Records, index and table of a Riacho deployment",
            enable_key_rotation=True,
            removal_policy=self._kept,
        )

    def _bucket(self, zone: str) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            f"Zone-{zone}",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.KMS if self.key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self.key,
            bucket_key_enabled=True if self.key else None,
            enforce_ssl=True,
            versioned=False,
            removal_policy=self._kept,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1))
            ],
        )
        accept(bucket, "AwsSolutions-S1", "access logs")
        return bucket

    def _table(self, *, protected: bool) -> dynamodb.Table:
        encryption = dynamodb.TableEncryption
        return dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=encryption.CUSTOMER_MANAGED if self.key else encryption.DEFAULT,
            encryption_key=self.key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=protected,
            removal_policy=self._kept,
        )


def _id(bucket: s3.Bucket) -> str:
    return bucket.stack.get_logical_id(bucket.node.default_child)  # type: ignore[arg-type]
