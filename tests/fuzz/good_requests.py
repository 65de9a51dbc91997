"""For each operation a request that a healthy gateway grants, and what must exist before."""

from dataclasses import dataclass, field
from typing import Any

from service.connect.tasks.items import (
    STOPPED,
    ConnectorItem,
    TaskItem,
    encode_connector,
    encode_task,
)
from storage import keys
from storage.formats.partitions import PartitionNumber
from tests.fuzz.deployment import Deployment

Operation = tuple[str, str]
"""Method and path, as in the document."""

RECORDS = {"records": [{"key": "k", "value": "v"}]}
ENCRYPTED = {"encryption": "topic", "encryption.kek": "file:kek"}
OFFSETS = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
ATOMIC = {"records": [{"topic": "t", "key": "k", "value": "v"}]}
TOPIC = "/v1/topics/{topic}"
PARTITION = f"{TOPIC}/partitions/{{partition}}"
GROUP = "/v1/groups/{group}"
MEMBER = f"{GROUP}/members/{{member}}"
DATA_KEY = f"{TOPIC}/data-keys/{{data_key}}"
TRANSACTION = "/v1/transactions/{transaction}"
KEY = "/v1/keys/{key}"
SUBJECT = "/subjects/{subject}"
VERSION = f"{SUBJECT}/versions/{{version}}"
SCHEMA = "/schemas/ids/{schema}"
CONNECTOR = "/connectors/{connector}"
DEAD_LETTERS = "/v1/dlq/{topic}"
TASK = f"{CONNECTOR}/tasks/{{task}}"
COMPATIBILITY = "/compatibility/subjects/{subject}/versions"
INT = {"schema": '"int"'}
SINK = {
    "connector.class": "FileStreamSink",
    "topics": "t",
    "file": "sink.txt",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "letters",
}
SOURCE = {"connector.class": "FileStreamSource", "topic": "t", "file": "source.txt"}
SINK_OFFSETS = {
    "offsets": [
        {
            "partition": {"kafka_topic": "t", "kafka_partition": 0},
            "offset": {"kafka_offset": 1},
        }
    ]
}
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "principal": "User:ana",
    "operation": "READ",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request; names in braces are replaced by those of the deployment."""

    path: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None


GOOD: dict[Operation, Request] = {
    ("GET", "/v1/topics"): Request(),
    ("POST", "/v1/topics"): Request(json={"name": "new"}),
    ("GET", TOPIC): Request(),
    ("PATCH", TOPIC): Request(json={"partitions": 3}),
    ("DELETE", TOPIC): Request(),
    ("GET", f"{TOPIC}/partitions"): Request(),
    ("POST", f"{TOPIC}/records"): Request(json=RECORDS),
    ("GET", f"{PARTITION}/records"): Request(params={"offset": 0}),
    ("POST", f"{PARTITION}/records"): Request(json=RECORDS),
    ("DELETE", f"{PARTITION}/records"): Request(params={"before_offset": "1"}),
    ("GET", f"{PARTITION}/offsets"): Request(params={"at": "1"}),
    ("GET", f"{PARTITION}/segments"): Request(),
    ("GET", f"{PARTITION}/segments/{{range}}"): Request(headers={"range": "bytes=0-9"}),
    ("POST", DATA_KEY): Request(path={"topic": "sealed", "data_key": 1}),
    ("POST", f"{TOPIC}/delete-records"): Request(
        json={"partitions": [{"partition": 0, "before_offset": 1}]}
    ),
    ("POST", "/v1/fetch"): Request(json={"partitions": [{"topic": "t", "partition": 0}]}),
    ("GET", "/v1/groups"): Request(),
    ("GET", GROUP): Request(),
    ("DELETE", GROUP): Request(path={"group": "empty"}),
    ("POST", f"{GROUP}/members"): Request(json={"topics": ["t"]}),
    ("DELETE", MEMBER): Request(),
    ("POST", f"{MEMBER}/heartbeat"): Request(json={"generation": 1}),
    ("POST", f"{MEMBER}/poll"): Request(json={"generation": 1}),
    ("GET", f"{GROUP}/offsets"): Request(),
    ("POST", f"{GROUP}/offsets"): Request(path={"group": "empty"}, json=OFFSETS),
    ("GET", f"{GROUP}/lag"): Request(),
    ("POST", f"{GROUP}/reset"): Request(path={"group": "empty"}, json={"to": "earliest"}),
    ("POST", "/v1/producers"): Request(json={}),
    ("GET", "/v1/transactions"): Request(),
    ("POST", "/v1/transactions"): Request(json={"transactional_id": "other"}),
    ("GET", TRANSACTION): Request(),
    ("POST", f"{TRANSACTION}/commit"): Request(),
    ("POST", f"{TRANSACTION}/abort"): Request(),
    ("POST", "/v1/atomic"): Request(json=ATOMIC),
    ("GET", "/v1/whoami"): Request(),
    ("POST", "/v1/keys"): Request(json={"principal": "User:bia"}),
    ("GET", "/v1/keys"): Request(),
    ("GET", KEY): Request(),
    ("DELETE", KEY): Request(),
    ("POST", f"{KEY}/rotate"): Request(json={"overlap_ms": 0}),
    ("GET", "/v1/acls"): Request(),
    ("POST", "/v1/acls"): Request(json={**ACL, "principal": "User:bia"}),
    ("DELETE", "/v1/acls"): Request(params={"principal": "User:ana"}),
    ("GET", "/v1/acls/check"): Request(params=ACL),
    ("GET", "/v1/quotas"): Request(),
    ("PUT", "/v1/quotas"): Request(json={"user": "User:ana", "producer_byte_rate": 2}),
    ("GET", "/"): Request(),
    ("GET", "/subjects"): Request(),
    ("POST", SUBJECT): Request(json=INT),
    ("DELETE", SUBJECT): Request(),
    ("GET", f"{SUBJECT}/metadata"): Request(),
    ("GET", f"{SUBJECT}/versions"): Request(),
    ("POST", f"{SUBJECT}/versions"): Request(json={"schema": '"long"'}),
    ("GET", VERSION): Request(),
    ("DELETE", VERSION): Request(),
    ("GET", f"{VERSION}/schema"): Request(),
    ("GET", f"{VERSION}/referencedby"): Request(),
    ("POST", f"{VERSION}/tags"): Request(json={"newVersion": 1}),
    ("GET", "/schemas"): Request(),
    ("GET", "/schemas/types"): Request(),
    ("GET", SCHEMA): Request(),
    ("GET", f"{SCHEMA}/schema"): Request(),
    ("GET", f"{SCHEMA}/subjects"): Request(),
    ("GET", f"{SCHEMA}/versions"): Request(),
    ("GET", "/schemas/guids/{guid}"): Request(),
    ("GET", "/schemas/guids/{guid}/ids"): Request(),
    ("POST", COMPATIBILITY): Request(json=INT),
    ("POST", f"{COMPATIBILITY}/{{version}}"): Request(json=INT),
    ("GET", "/config"): Request(),
    ("PUT", "/config"): Request(json={"compatibility": "FULL"}),
    ("DELETE", "/config"): Request(),
    ("GET", "/config/{subject}"): Request(),
    ("PUT", "/config/{subject}"): Request(json={"compatibility": "FULL"}),
    ("DELETE", "/config/{subject}"): Request(),
    ("GET", "/mode"): Request(),
    ("PUT", "/mode"): Request(json={"mode": "READWRITE"}),
    ("DELETE", "/mode"): Request(),
    ("GET", "/mode/{subject}"): Request(),
    ("PUT", "/mode/{subject}"): Request(json={"mode": "READWRITE"}),
    ("DELETE", "/mode/{subject}"): Request(),
    ("GET", "/contexts"): Request(),
    ("DELETE", "/contexts/{context}"): Request(),
    ("GET", "/v1/metadata/id"): Request(),
    ("GET", "/v1/metadata/version"): Request(),
    ("GET", "/v1/metadata/deployment"): Request(),
    ("POST", "/"): Request(json={}),
    ("GET", "/connect"): Request(),
    ("GET", "/health"): Request(),
    ("GET", "/connectors"): Request(params={"expand": "status"}),
    ("POST", "/connectors"): Request(json={"name": "new", "config": SOURCE}),
    ("GET", CONNECTOR): Request(),
    ("DELETE", CONNECTOR): Request(),
    ("GET", f"{CONNECTOR}/config"): Request(),
    ("PUT", f"{CONNECTOR}/config"): Request(json=SINK),
    ("PATCH", f"{CONNECTOR}/config"): Request(
        json={"tasks.max": 2, "errors.deadletterqueue.topic.name": "letters"}
    ),
    ("GET", f"{CONNECTOR}/status"): Request(),
    ("PUT", f"{CONNECTOR}/pause"): Request(),
    ("PUT", f"{CONNECTOR}/resume"): Request(),
    ("PUT", f"{CONNECTOR}/stop"): Request(),
    ("POST", f"{CONNECTOR}/restart"): Request(params={"includeTasks": "true"}),
    ("GET", f"{CONNECTOR}/tasks"): Request(),
    ("GET", f"{CONNECTOR}/tasks-config"): Request(),
    ("GET", f"{TASK}/status"): Request(),
    ("POST", f"{TASK}/restart"): Request(),
    ("GET", f"{CONNECTOR}/topics"): Request(),
    ("PUT", f"{CONNECTOR}/topics/reset"): Request(),
    ("GET", f"{CONNECTOR}/offsets"): Request(),
    ("PATCH", f"{CONNECTOR}/offsets"): Request(json=SINK_OFFSETS),
    ("DELETE", f"{CONNECTOR}/offsets"): Request(),
    ("GET", "/connector-plugins"): Request(),
    ("GET", "/connector-plugins/{plugin}/config"): Request(),
    ("PUT", "/connector-plugins/{plugin}/config/validate"): Request(json=SINK),
    ("GET", "/admin/loggers"): Request(),
    ("GET", "/admin/loggers/{logger}"): Request(),
    ("PUT", "/admin/loggers/{logger}"): Request(json={"level": "WARN"}),
    ("GET", "/v1/dlq"): Request(),
    ("GET", DEAD_LETTERS): Request(),
    ("GET", f"{DEAD_LETTERS}/letters"): Request(params={"max": "1"}),
    ("POST", f"{DEAD_LETTERS}/redrive"): Request(json={"to": "topic:t"}),
    ("GET", "/v1/cluster"): Request(),
    ("GET", "/healthy"): Request(),
    ("GET", "/ready"): Request(),
    ("GET", "/metrics"): Request(),
}


async def furnish(deployed: Deployment) -> dict[str, Any]:
    """Create what the good requests need; return the values for the braces in their paths."""
    await deployed.done("POST", "/v1/topics", json={"name": "t", "partitions": 2})
    for _ in range(3):
        await deployed.done("POST", "/v1/topics/t/partitions/0/records", json=RECORDS)
    sealed = {"name": "sealed", "partitions": 2, "config": ENCRYPTED}
    await deployed.done("POST", "/v1/topics", json=sealed)
    await deployed.done("POST", "/v1/topics/sealed/partitions/0/records", json=RECORDS)
    await deployed.done("POST", "/v1/groups/empty/offsets", json=OFFSETS)
    joined = await deployed.done("POST", "/v1/groups/g/members", json={"topics": ["t"]})
    begun = await deployed.done(
        "POST", "/v1/transactions", json={"transactional_id": "x", "timeout_ms": 900_000}
    )
    transaction = begun["transaction_id"]
    await deployed.done(
        "POST", "/v1/topics/t/records", json=RECORDS, headers={"riacho-transaction": transaction}
    )
    [entry] = (await deployed.gateway.locate("t", PartitionNumber(0), 0, 1, 1)).entries
    key = await deployed.done("POST", "/v1/keys", json={"principal": "User:ana"})
    await deployed.done("POST", "/v1/acls", json=ACL)
    quota = {"user": "User:ana", "producer_byte_rate": 1}
    await deployed.done("PUT", "/v1/quotas", json=quota)
    schema = await deployed.done("POST", "/subjects/s/versions", json=INT)
    await deployed.done("PUT", "/config/s", json={"compatibility": "BACKWARD"})
    await deployed.done("PUT", "/mode/s", json={"mode": "READWRITE"})
    config = {"name": "c", **SINK, "errors.deadletterqueue.topic.name": "t"}
    connector = ConnectorItem("c", config, "User:ana", 1, STOPPED, planned=1, task_count=1)
    await deployed.put(keys.connector("c"), encode_connector(connector))
    await deployed.put(keys.connect_task("c", 0), encode_task(TaskItem("c", 0, 1)))
    return {
        "connector": "c",
        "task": 0,
        "plugin": "FileStreamSink",
        "logger": "root",
        "subject": "s",
        "version": 1,
        "schema": schema["id"],
        "guid": schema["guid"],
        "context": ".c",
        "topic": "t",
        "range": f"{entry.end_offset - 1}-{entry.object_id.hex()}",
        "partition": 0,
        "group": "g",
        "member": joined["member_id"],
        "transaction": transaction,
        "key": key["id"],
    }
