"""Which of these handlers answers which API.

AlterPartitionReassignments is not served: brokers hold no replicas that could be moved. The zones
of a topic are changed by `PATCH /v1/topics`.
"""

from service.kafka.call import Handler
from service.kafka.handlers.admin.acls import AclAdmin
from service.kafka.handlers.admin.configs import ConfigAdmin
from service.kafka.handlers.admin.placement import PlacementAdmin
from service.kafka.handlers.admin.producers import ProducerAdmin
from service.kafka.handlers.admin.quotas import QuotaAdmin
from service.kafka.handlers.admin.records import RecordAdmin
from service.kafka.handlers.admin.scram import ScramAdmin
from service.kafka.handlers.admin.topics import TopicAdmin
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers of administration, by the key of their API."""
    topics, records, configs = TopicAdmin(parts), RecordAdmin(parts), ConfigAdmin(parts)
    placement, producers = PlacementAdmin(parts), ProducerAdmin(parts)
    acls, quotas, scram = AclAdmin(parts), QuotaAdmin(parts), ScramAdmin(parts)
    return {
        Api.CREATE_TOPICS: topics.create_topics,
        Api.DELETE_TOPICS: topics.delete_topics,
        Api.DELETE_RECORDS: records.delete_records,
        Api.CREATE_PARTITIONS: topics.create_partitions,
        Api.DESCRIBE_CONFIGS: configs.describe,
        Api.ALTER_CONFIGS: configs.alter,
        Api.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
        Api.LIST_CONFIG_RESOURCES: configs.list_resources,
        Api.DESCRIBE_LOG_DIRS: placement.describe_log_dirs,
        Api.ELECT_LEADERS: placement.elect_leaders,
        Api.LIST_PARTITION_REASSIGNMENTS: placement.list_reassignments,
        Api.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
        Api.ALTER_CLIENT_QUOTAS: quotas.alter,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: scram.describe,
        Api.ALTER_USER_SCRAM_CREDENTIALS: scram.alter,
        Api.DESCRIBE_ACLS: acls.describe,
        Api.CREATE_ACLS: acls.create,
        Api.DELETE_ACLS: acls.delete,
        Api.DESCRIBE_PRODUCERS: producers.describe_producers,
        Api.DESCRIBE_TRANSACTIONS: producers.describe_transactions,
        Api.LIST_TRANSACTIONS: producers.list_transactions,
    }
