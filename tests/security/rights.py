"""What each operation takes, by hand: Kafka's rules, not what the code says of itself.

TOPIC READ          this right on the topic that the request names
A | B               one of both
A + B               both
OPEN                no credential either
ANY                 any credential: lists are filtered, and what is one's own is one's own
EACH                any credential: what may not be read is refused part by part
"""

from typing import Final

from service.routes.table import PAGES
from tests.fuzz.good_requests import (
    COMPATIBILITY,
    CONNECTOR,
    DEAD_LETTERS,
    GROUP,
    MEMBER,
    PARTITION,
    SCHEMA,
    SUBJECT,
    TASK,
    TOPIC,
    TRANSACTION,
    VERSION,
    Operation,
)

OPEN: Final = "OPEN"
ANY: Final = "ANY"
EACH: Final = "EACH"

_KEY: Final = "/v1/keys/{key}"

RIGHTS: Final[dict[Operation, str]] = {
    ("GET", "/healthy"): OPEN,
    ("GET", "/ready"): OPEN,
    ("POST", f"{TOPIC}/records"): "TOPIC WRITE",
    ("POST", f"{PARTITION}/records"): "TOPIC WRITE",
    ("POST", "/v1/atomic"): "TOPIC WRITE",
    ("GET", f"{PARTITION}/records"): "TOPIC READ",
    ("GET", f"{PARTITION}/segments"): "TOPIC READ",
    ("GET", f"{PARTITION}/segments/{{range}}"): "TOPIC READ",
    ("POST", f"{TOPIC}/data-keys/{{data_key}}"): "TOPIC READ",
    ("POST", "/v1/fetch"): EACH,
    ("DELETE", f"{PARTITION}/records"): "TOPIC DELETE",
    ("POST", f"{TOPIC}/delete-records"): "TOPIC DELETE",
    ("GET", "/v1/topics"): ANY,
    ("POST", "/v1/topics"): "CLUSTER CREATE | TOPIC CREATE",
    ("GET", TOPIC): "TOPIC DESCRIBE",
    ("PATCH", TOPIC): "TOPIC ALTER",
    ("DELETE", TOPIC): "TOPIC DELETE",
    ("GET", f"{TOPIC}/partitions"): "TOPIC DESCRIBE",
    ("GET", f"{PARTITION}/offsets"): "TOPIC DESCRIBE",
    ("GET", "/v1/groups"): ANY,
    ("GET", GROUP): "GROUP DESCRIBE",
    ("DELETE", GROUP): "GROUP DELETE",
    ("POST", f"{GROUP}/members"): "GROUP READ + TOPIC DESCRIBE",
    ("DELETE", MEMBER): "GROUP READ",
    ("POST", f"{MEMBER}/heartbeat"): "GROUP READ",
    ("POST", f"{MEMBER}/poll"): "GROUP READ",
    ("GET", f"{GROUP}/offsets"): "GROUP DESCRIBE",
    ("POST", f"{GROUP}/offsets"): "GROUP READ + TOPIC READ",
    ("GET", f"{GROUP}/lag"): "GROUP DESCRIBE",
    ("POST", f"{GROUP}/reset"): "GROUP READ + TOPIC READ",
    ("POST", "/v1/producers"): "CLUSTER IDEMPOTENT_WRITE | TOPIC WRITE",
    ("GET", "/v1/transactions"): ANY,
    ("POST", "/v1/transactions"): "TRANSACTIONAL_ID WRITE",
    ("GET", TRANSACTION): "TRANSACTIONAL_ID DESCRIBE",
    ("POST", f"{TRANSACTION}/commit"): "TRANSACTIONAL_ID WRITE",
    ("POST", f"{TRANSACTION}/abort"): "TRANSACTIONAL_ID WRITE",
    ("GET", "/v1/whoami"): ANY,
    ("GET", "/v1/keys"): ANY,
    ("POST", "/v1/keys"): "CLUSTER ALTER",  # For somebody else.
    ("GET", _KEY): "CLUSTER DESCRIBE",
    ("DELETE", _KEY): "CLUSTER ALTER",
    ("POST", f"{_KEY}/rotate"): "CLUSTER ALTER",
    ("GET", "/v1/acls"): "CLUSTER DESCRIBE",
    ("POST", "/v1/acls"): "CLUSTER ALTER",
    ("DELETE", "/v1/acls"): "CLUSTER ALTER",
    ("GET", "/v1/acls/check"): "CLUSTER DESCRIBE",
    ("GET", "/v1/quotas"): "CLUSTER DESCRIBE_CONFIGS",
    ("PUT", "/v1/quotas"): "CLUSTER ALTER_CONFIGS",
    ("GET", "/"): ANY,
    ("POST", "/"): ANY,
    ("GET", "/subjects"): ANY,
    ("POST", SUBJECT): "SUBJECT READ",
    ("DELETE", SUBJECT): "SUBJECT DELETE",
    ("GET", f"{SUBJECT}/metadata"): "SUBJECT READ",
    ("GET", f"{SUBJECT}/versions"): "SUBJECT READ",
    ("POST", f"{SUBJECT}/versions"): "SUBJECT WRITE",
    ("GET", VERSION): "SUBJECT READ",
    ("DELETE", VERSION): "SUBJECT DELETE",
    ("GET", f"{VERSION}/schema"): "SUBJECT READ",
    ("GET", f"{VERSION}/referencedby"): "SUBJECT READ",
    ("POST", f"{VERSION}/tags"): "SUBJECT READ + SUBJECT WRITE",
    ("GET", "/schemas"): ANY,
    ("GET", "/schemas/types"): ANY,
    ("GET", SCHEMA): EACH,
    ("GET", f"{SCHEMA}/schema"): EACH,
    ("GET", f"{SCHEMA}/subjects"): EACH,
    ("GET", f"{SCHEMA}/versions"): EACH,
    ("GET", "/schemas/guids/{guid}"): EACH,
    ("GET", "/schemas/guids/{guid}/ids"): EACH,
    ("POST", COMPATIBILITY): "SUBJECT READ",
    ("POST", f"{COMPATIBILITY}/{{version}}"): "SUBJECT READ",
    **{
        (method, f"/{rule}"): f"CLUSTER {verb}_CONFIGS"
        for rule in ("config", "mode")
        for method, verb in (("GET", "DESCRIBE"), ("PUT", "ALTER"), ("DELETE", "ALTER"))
    },
    **{
        (method, f"/{rule}/{{subject}}"): f"SUBJECT {verb}_CONFIGS"
        for rule in ("config", "mode")
        for method, verb in (("GET", "DESCRIBE"), ("PUT", "ALTER"), ("DELETE", "ALTER"))
    },
    ("GET", "/contexts"): ANY,
    ("DELETE", "/contexts/{context}"): "CLUSTER ALTER_CONFIGS",
    ("GET", "/v1/metadata/id"): ANY,
    ("GET", "/v1/metadata/deployment"): ANY,
    ("GET", "/v1/metadata/version"): ANY,
    ("GET", "/connect"): ANY,
    ("GET", "/health"): OPEN,
    ("GET", "/connectors"): ANY,
    ("POST", "/connectors"): "CONNECTOR CREATE",
    ("DELETE", CONNECTOR): "CONNECTOR DELETE",
    # Of one that is there; one that is not needs CREATE, too.
    ("PUT", f"{CONNECTOR}/config"): "CONNECTOR ALTER",
    **{
        ("GET", path): "CONNECTOR DESCRIBE"
        for path in (
            CONNECTOR,
            f"{CONNECTOR}/config",
            f"{CONNECTOR}/status",
            f"{CONNECTOR}/tasks",
            f"{CONNECTOR}/tasks-config",
            f"{TASK}/status",
            f"{CONNECTOR}/topics",
            f"{CONNECTOR}/offsets",
        )
    },
    **{
        (method, f"{CONNECTOR}/{what}"): "CONNECTOR ALTER"
        for method, what in (
            ("PATCH", "config"),
            ("PUT", "pause"),
            ("PUT", "resume"),
            ("PUT", "stop"),
            ("POST", "restart"),
            ("POST", "tasks/{task}/restart"),
            ("PUT", "topics/reset"),
            ("PATCH", "offsets"),
            ("DELETE", "offsets"),
        )
    },
    ("GET", "/connector-plugins"): ANY,
    ("GET", "/connector-plugins/{plugin}/config"): ANY,
    ("PUT", "/connector-plugins/{plugin}/config/validate"): ANY,
    ("GET", "/admin/loggers"): "CLUSTER DESCRIBE_CONFIGS",
    ("GET", "/admin/loggers/{logger}"): "CLUSTER DESCRIBE_CONFIGS",
    ("PUT", "/admin/loggers/{logger}"): "CLUSTER ALTER_CONFIGS",
    ("GET", "/v1/dlq"): ANY,
    ("GET", DEAD_LETTERS): "TOPIC READ",
    ("GET", f"{DEAD_LETTERS}/letters"): "TOPIC READ",
    ("POST", f"{DEAD_LETTERS}/redrive"): "TOPIC READ + TOPIC WRITE",
    ("GET", "/v1/cluster"): "CLUSTER DESCRIBE",
    ("GET", "/metrics"): "CLUSTER DESCRIBE",
    **{("GET", page): "CLUSTER DESCRIBE" for page in PAGES},
}


def missing(needed: str, held: frozenset[str]) -> set[str]:
    """Return the types of resources whose rights `held` lacks; none: the caller is let in."""
    if needed in (OPEN, ANY, EACH):
        return set()
    lacking: set[str] = set()
    for part in needed.split(" + "):
        choices = part.split(" | ")
        if not held.intersection(choices):
            lacking |= {choice.split()[0] for choice in choices}
    return lacking
