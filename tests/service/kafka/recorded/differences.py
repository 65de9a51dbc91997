"""Where we answer otherwise than Kafka, on purpose: our codes, and why."""

from typing import Any, Final

from service.kafka.protocol.error_codes import ErrorCode


def _produced(code: ErrorCode) -> dict[str, Any]:
    return {"responses[0].partition_responses[0].error_code": code}


DIFFERENT: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "produce, cut": (
        _produced(ErrorCode.CORRUPT_MESSAGE),
        "what is cut is damaged, and the client may send it again",
    ),
    "produce, magic 1": (
        _produced(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        "an old client learns that it is its format that is refused",
    ),
    "produce, an unknown codec": (
        _produced(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "Kafka fails at it, with UNKNOWN_SERVER_ERROR",
    ),
    "producer, an old batch": (
        _produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        "it was stored: clients take this code for success, and Kafka's for a loss",
    ),
    "producer, begins in the middle": (
        _produced(ErrorCode.UNKNOWN_PRODUCER_ID),
        "records may be missing before it; clients begin again with a new epoch",
    ),
    "coordinator, an empty group": (
        {"error_code": 0, "coordinators[0].error_code": ErrorCode.INVALID_GROUP_ID},
        "a group has a name",
    ),
    "commit, an empty group": (
        {"topics[0].partitions[0].error_code": ErrorCode.INVALID_GROUP_ID},
        "a group has a name; Kafka keeps the empty one for clients that are older than groups",
    ),
    "committed, an unknown member": (
        {"error_code": 0, "groups[0].error_code": ErrorCode.UNKNOWN_MEMBER_ID},
        "whoever says that it is a member of a group that is gone learns that it is not",
    ),
    "consumer heartbeat, an unknown member": (
        {"error_code": ErrorCode.UNKNOWN_MEMBER_ID},
        "a group is there as long as somebody is in it: the member joins again, and does not end",
    ),
    "member, heartbeat of a consumer with an epoch": (
        {"error_code": ErrorCode.UNKNOWN_MEMBER_ID},
        "as above: nobody with this name has joined as a consumer",
    ),
    "create, a replica on no broker": (
        {"topics[0].error_code": 0, "topics[0].topic_config_error_code": 0},
        "brokers are gateways, which come and go; zones hold the replicas",
    ),
    "alter settings, an unknown operation": (
        {"responses[0].error_code": ErrorCode.INVALID_REQUEST},
        "Kafka fails at it, with UNKNOWN_SERVER_ERROR",
    ),
}
