"""Settings of topics, brokers and groups."""

from service.kafka.protocol.notation import Bool, Int8, Int16, Int32, Message, Str, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: Int8 = field("1+")
    resource_name: Str = field("1+")
    configuration_keys: list[Str] | None = field("1+", nullable="1+")


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field("1+")
    include_synonyms: Bool = field("1+")
    include_documentation: Bool = field("3+")


class DescribeConfigsSynonym(Struct):
    name: Str = field("1+")
    value: Str | None = field("1+", nullable="1+")
    source: Int8 = field("1+")


class DescribeConfigsResourceResult(Struct):
    name: Str = field("1+")
    value: Str | None = field("1+", nullable="1+")
    read_only: Bool = field("1+")
    config_source: Int8 = field("1+", default=-1)
    is_sensitive: Bool = field("1+")
    synonyms: list[DescribeConfigsSynonym] = field("1+")
    config_type: Int8 = field("3+")
    documentation: Str | None = field("3+", nullable="3+")


class DescribeConfigsResult(Struct):
    error_code: Int16 = field("1+")
    error_message: Str | None = field("1+", nullable="1+")
    resource_type: Int8 = field("1+")
    resource_name: Str = field("1+")
    configs: list[DescribeConfigsResourceResult] = field("1+")


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    results: list[DescribeConfigsResult] = field("1+")


class AlterConfigsAlterableConfig(Struct):
    name: Str = field("0+")
    value: Str | None = field("0+", nullable="0+")


class AlterConfigsAlterConfigsResource(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    configs: list[AlterConfigsAlterableConfig] = field("0+")


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsAlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")


class AlterConfigsAlterConfigsResourceResponse(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[AlterConfigsAlterConfigsResourceResponse] = field("0+")


class IncrementalAlterConfigsAlterableConfig(Struct):
    name: Str = field("0+")
    config_operation: Int8 = field("0+")
    value: Str | None = field("0+", nullable="0+")


class IncrementalAlterConfigsAlterConfigsResource(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    configs: list[IncrementalAlterConfigsAlterableConfig] = field("0+")


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsAlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")


class IncrementalAlterConfigsAlterConfigsResourceResponse(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[IncrementalAlterConfigsAlterConfigsResourceResponse] = field("0+")


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field("1+")


class ConfigResource(Struct):
    resource_name: Str = field("0+")
    resource_type: Int8 = field("1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    config_resources: list[ConfigResource] = field("0+")
