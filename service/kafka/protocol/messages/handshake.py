"""ApiVersions, SaslHandshake and SaslAuthenticate: what comes first on a connection."""

from service.kafka.protocol.notation import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Struct,
    field,
)


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: Str = field("0+")


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: Int16 = field("0+")
    mechanisms: list[Str] = field("0+")


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    client_software_name: Str = field("3+")
    client_software_version: Str = field("3+")


class ApiVersion(Struct):
    api_key: Int16 = field("0+")
    min_version: Int16 = field("0+")
    max_version: Int16 = field("0+")


class SupportedFeatureKey(Struct):
    name: Str = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


class FinalizedFeatureKey(Struct):
    name: Str = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    error_code: Int16 = field("0+")
    api_keys: list[ApiVersion] = field("0+")
    throttle_time_ms: Int32 = field("1+")
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2)
    zk_migration_ready: Bool = field("3+", tag=3)


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = field("0+")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    auth_bytes: Bytes = field("0+")
    session_lifetime_ms: Int64 = field("1+")
