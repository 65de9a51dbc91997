"""The table of what is about groups in general, and of the consumer protocol."""

from service.kafka.call import Handler
from service.kafka.handlers.groups.administration import GroupAdministration
from service.kafka.handlers.groups.consumer_heartbeat import ConsumerHeartbeat
from service.kafka.handlers.groups.descriptions import Descriptions
from service.kafka.handlers.groups.offset_commit import OffsetCommits
from service.kafka.handlers.groups.offset_fetch import OffsetFetches
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers by their keys."""
    commits, descriptions = OffsetCommits(parts), Descriptions(parts)
    administration = GroupAdministration(parts)
    return {
        Api.OFFSET_COMMIT: commits.commit,
        Api.OFFSET_FETCH: OffsetFetches(parts).answer,
        Api.DESCRIBE_GROUPS: descriptions.classic,
        Api.LIST_GROUPS: administration.list,
        Api.DELETE_GROUPS: administration.delete,
        Api.OFFSET_DELETE: commits.delete,
        Api.CONSUMER_GROUP_HEARTBEAT: ConsumerHeartbeat(parts).answer,
        Api.CONSUMER_GROUP_DESCRIBE: descriptions.consumer,
    }
