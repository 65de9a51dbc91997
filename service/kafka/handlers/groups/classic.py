"""The calls of classic groups, and the one for their coordinator, by their keys."""

from service.kafka.call import Handler
from service.kafka.handlers.groups.classic_members import ClassicMembers
from service.kafka.handlers.groups.find_coordinator import CoordinatorLookup
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api


def handlers(parts: Parts) -> dict[int, Handler]:
    members = ClassicMembers(parts)
    return {
        Api.FIND_COORDINATOR: CoordinatorLookup(parts).answer,
        Api.JOIN_GROUP: members.join,
        Api.HEARTBEAT: members.heartbeat,
        Api.LEAVE_GROUP: members.leave,
        Api.SYNC_GROUP: members.sync,
    }
