"""Types of the values in requests and answers, as the OpenAPI document shows them.

Bounds (`ge`, `le`) are also checked when such a value is decoded. What is in `extra_json_schema`
is only shown: the code that uses the value checks it, with an error that says more.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from service.process.limits.record_limits import PARTITION_MAX
from storage.formats import partitions
from storage.head.producers import EPOCH_MAX, PRODUCER_ID_MAX

OFFSET_MAX: Final = 2**63 - 1

TOPIC_NAME: Final[dict[str, Any]] = {"pattern": r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$"}

TopicName: TypeAlias = Annotated[str, Meta(extra_json_schema=TOPIC_NAME)]
GroupId: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[a-zA-Z0-9._-]{1,249}$"})]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=OFFSET_MAX, extra_json_schema={"format": "int64"})]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=OFFSET_MAX, extra_json_schema={"format": "int64"})]
PartitionNumber: TypeAlias = Annotated[partitions.PartitionNumber, Meta(ge=0, le=PARTITION_MAX)]
Generation: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
ProducerId: TypeAlias = Annotated[int, Meta(ge=1, le=PRODUCER_ID_MAX)]
Epoch: TypeAlias = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
Base64: TypeAlias = Annotated[bytes, Meta(extra_json_schema={"format": "byte"})]


class Acks(StrEnum):
    """When a produce call is answered."""

    NONE = "0"
    """Before anything is written."""
    LEADER = "1"
    """When the records are committed and in the zone that leads."""
    ALL = "all"
    """When they are committed and in every zone in sync."""


class Partition(Struct):
    """A partition in an answer."""

    topic: TopicName
    partition: PartitionNumber
