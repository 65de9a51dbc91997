"""ListGroups and DeleteGroups."""

from service.groups.classic import consumers
from service.groups.state import Group
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.descriptions import state_of
from service.kafka.handlers.groups.resources import may
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from service.security.acls import Operation, ResourceType
from storage.errors import RiachoError
from storage.tasks import in_turns


class GroupAdministration:
    def __init__(self, parts: Parts) -> None:
        self._coordinator = parts.coordinator

    async def list(self, call: KafkaCall, request: ListGroupsRequest) -> ListGroupsResponse:
        """List the groups that the caller may describe, of these states and types."""
        caller = call.caller
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        try:
            groups = await self._coordinator.all()
        except RiachoError as error:
            return ListGroupsResponse(error_code=code_of(error, Asked.COORDINATOR))
        listed = [
            _listed(caller.outer_name(group_id), group)
            for group_id, group in sorted(groups.items())
            if may(caller, Operation.DESCRIBE, group_id)
        ]
        return ListGroupsResponse(
            groups=[
                one
                for one in listed
                if (not states or one.group_state.lower() in states)
                and (not types or one.group_type.lower() in types)
            ]
        )

    async def delete(self, call: KafkaCall, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Delete groups without members, with all they have committed."""
        results = []
        async for called in in_turns(dict.fromkeys(request.groups_names)):
            code = await self._deleted(call, call.caller.inner_name(called))
            results.append(DeletableGroupResult(group_id=called, error_code=code))
        return DeleteGroupsResponse(results=results)

    async def _deleted(self, call: KafkaCall, group_id: str) -> ErrorCode:
        if not may(call.caller, Operation.DELETE, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        try:
            await self._coordinator.delete(group_id)
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR)
        call.caller.changed(Operation.DELETE, ResourceType.GROUP, group_id)
        return ErrorCode.NONE


def _listed(called: str, group: Group) -> ListedGroup:
    is_classic = group.classic is not None
    protocol_type = consumers.PROTOCOL_TYPE if group.generation else ""
    return ListedGroup(
        group_id=called,
        protocol_type=group.classic.protocol_type if group.classic is not None else protocol_type,
        group_state=state_of(group),
        group_type="classic" if is_classic else "consumer",
    )
