"""Quotas of clients, and SCRAM credentials of users."""

from service.kafka.protocol.notation import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    Str,
    Struct,
    field,
)


class ComponentData(Struct):
    entity_type: Str = field("0+")
    match_type: Int8 = field("0+")
    match: Str | None = field("0+", nullable="0+")


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field("0+")
    strict: Bool = field("0+")


class DescribeClientQuotasEntityData(Struct):
    entity_type: Str = field("0+")
    entity_name: Str | None = field("0+", nullable="0+")


class ValueData(Struct):
    key: Str = field("0+")
    value: Float64 = field("0+")


class DescribeClientQuotasEntryData(Struct):
    entity: list[DescribeClientQuotasEntityData] = field("0+")
    values: list[ValueData] = field("0+")


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = field("0+", nullable="0+")


class AlterClientQuotasEntityData(Struct):
    entity_type: Str = field("0+")
    entity_name: Str | None = field("0+", nullable="0+")


class OpData(Struct):
    key: Str = field("0+")
    value: Float64 = field("0+")
    remove: Bool = field("0+")


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[AlterClientQuotasEntityData] = field("0+")
    ops: list[OpData] = field("0+")


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequestEntryData] = field("0+")
    validate_only: Bool = field("0+")


class AlterClientQuotasResponseEntryData(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    entity: list[AlterClientQuotasEntityData] = field("0+")


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    entries: list[AlterClientQuotasResponseEntryData] = field("0+")


class UserName(Struct):
    name: Str = field("0+")


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field("0+", nullable="0+")


class CredentialInfo(Struct):
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = field("0+")


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field("0+")


class ScramCredentialDeletion(Struct):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")


class ScramCredentialUpsertion(Struct):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
    salt: Bytes = field("0+")
    salted_password: Bytes = field("0+")


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field("0+")
    upsertions: list[ScramCredentialUpsertion] = field("0+")


class AlterUserScramCredentialsResult(Struct):
    user: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AlterUserScramCredentialsResult] = field("0+")
