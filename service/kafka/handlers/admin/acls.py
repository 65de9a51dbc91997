"""DescribeAcls, CreateAcls and DeleteAcls."""

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.acl_codes import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    acl_of,
    filter_of,
    is_known_to_kafka,
    number_of,
)
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from service.security.acl_items import AclItems
from service.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    ResourceType,
    described,
)
from service.security.caller import Caller
from storage.tasks import in_turns


class AclAdmin:
    def __init__(self, parts: Parts) -> None:
        self._security = parts.security
        self._items = AclItems(parts.gateway.metadata, parts.gateway.world)

    async def describe(self, call: KafkaCall, request: DescribeAclsRequest) -> DescribeAclsResponse:
        with Judged(call.caller) as judged:
            self._check(call.caller, Operation.DESCRIBE)
            found = await self._matching(filter_of(request))
            return DescribeAclsResponse(resources=_by_resource(found))
        return DescribeAclsResponse(error_code=judged.code, error_message=judged.text)

    async def create(self, call: KafkaCall, request: CreateAclsRequest) -> CreateAclsResponse:
        response = CreateAclsResponse()
        with Judged(call.caller) as judged:
            self._check(call.caller, Operation.ALTER)
            response.results = [
                await self._create(call.caller, new) async for new in in_turns(request.creations)
            ]
        if not judged.is_done:
            response.results = [
                AclCreationResult(error_code=judged.code, error_message=judged.text)
                for _ in request.creations
            ]
        return response

    async def _create(self, caller: Caller, new: AclCreation) -> AclCreationResult:
        with Judged(caller) as judged:
            acl = acl_of(new)
            await self._items.add([acl])
            self._noted(caller, Operation.CREATE, acl)
        return AclCreationResult(error_code=judged.code, error_message=judged.text)

    async def delete(self, call: KafkaCall, request: DeleteAclsRequest) -> DeleteAclsResponse:
        response = DeleteAclsResponse()
        with Judged(call.caller) as judged:
            self._check(call.caller, Operation.ALTER)
            response.filter_results = [
                await self._delete(call.caller, each) async for each in in_turns(request.filters)
            ]
        if not judged.is_done:
            response.filter_results = [
                DeleteAclsFilterResult(error_code=judged.code, error_message=judged.text)
                for _ in request.filters
            ]
        return response

    async def _delete(self, caller: Caller, fields: DeleteAclsFilter) -> DeleteAclsFilterResult:
        with Judged(caller) as judged:
            found = await self._matching(filter_of(fields))
            await self._items.remove(found)
            for acl in found:
                self._noted(caller, Operation.DELETE, acl)
            return DeleteAclsFilterResult(matching_acls=[_deleted(acl) for acl in found])
        return DeleteAclsFilterResult(error_code=judged.code, error_message=judged.text)

    def _check(self, caller: Caller, operation: Operation) -> None:
        if self._security is None:
            raise KafkaRefusal(
                ErrorCode.SECURITY_DISABLED,
                "no ACL is checked here: start the gateway with RIACHO_SECURITY=on",
            )
        caller.require(operation, ResourceType.CLUSTER)

    async def _matching(self, wanted: AclFilter) -> list[Acl]:
        everything = await self._items.all()
        return [acl for acl in everything if is_known_to_kafka(acl) and wanted.matches(acl)]

    def _noted(self, caller: Caller, operation: Operation, acl: Acl) -> None:
        """Record a change; this gateway obeys it with the next request."""
        if self._security is not None:
            self._security.view.expire()
        what = f"acl {acl.permission} {acl.operation} on {described(acl)} from {acl.host}"
        caller.changed(operation, ResourceType.CLUSTER, what)


def _by_resource(acls: list[Acl]) -> list[DescribeAclsResource]:
    found: dict[tuple[ResourceType, PatternType, str], list[AclDescription]] = {}
    for acl in acls:
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        found.setdefault(key, []).append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=number_of(OPERATIONS, acl.operation),
                permission_type=number_of(PERMISSIONS, acl.permission),
            )
        )
    return [
        DescribeAclsResource(
            resource_type=number_of(RESOURCE_TYPES, kind),
            resource_name=name,
            pattern_type=number_of(PATTERN_TYPES, pattern),
            acls=of_resource,
        )
        for (kind, pattern, name), of_resource in found.items()
    ]


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=number_of(RESOURCE_TYPES, acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=number_of(PATTERN_TYPES, acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=number_of(OPERATIONS, acl.operation),
        permission_type=number_of(PERMISSIONS, acl.permission),
    )
