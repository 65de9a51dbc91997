"""Access rules: describe, create, delete."""

from service.kafka.protocol.notation import Int8, Int16, Int32, Message, Str, Struct, field


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8 = field("1+")
    resource_name_filter: Str | None = field("1+", nullable="1+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field("1+", nullable="1+")
    host_filter: Str | None = field("1+", nullable="1+")
    operation: Int8 = field("1+")
    permission_type: Int8 = field("1+")


class AclDescription(Struct):
    principal: Str = field("1+")
    host: Str = field("1+")
    operation: Int8 = field("1+")
    permission_type: Int8 = field("1+")


class DescribeAclsResource(Struct):
    resource_type: Int8 = field("1+")
    resource_name: Str = field("1+")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field("1+")


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("1+")
    error_message: Str | None = field("1+", nullable="1+")
    resources: list[DescribeAclsResource] = field("1+")


class AclCreation(Struct):
    resource_type: Int8 = field("1+")
    resource_name: Str = field("1+")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: Str = field("1+")
    host: Str = field("1+")
    operation: Int8 = field("1+")
    permission_type: Int8 = field("1+")


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field("1+")


class AclCreationResult(Struct):
    error_code: Int16 = field("1+")
    error_message: Str | None = field("1+", nullable="1+")


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("1+")
    results: list[AclCreationResult] = field("1+")


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field("1+")
    resource_name_filter: Str | None = field("1+", nullable="1+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field("1+", nullable="1+")
    host_filter: Str | None = field("1+", nullable="1+")
    operation: Int8 = field("1+")
    permission_type: Int8 = field("1+")


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field("1+")


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field("1+")
    error_message: Str | None = field("1+", nullable="1+")
    resource_type: Int8 = field("1+")
    resource_name: Str = field("1+")
    pattern_type: Int8 = field("1+", default=3)
    principal: Str = field("1+")
    host: Str = field("1+")
    operation: Int8 = field("1+")
    permission_type: Int8 = field("1+")


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field("1+")
    error_message: Str | None = field("1+", nullable="1+")
    matching_acls: list[DeleteAclsMatchingAcl] = field("1+")


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("1+")
    filter_results: list[DeleteAclsFilterResult] = field("1+")
