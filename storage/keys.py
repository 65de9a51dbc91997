"""The names of all objects and metadata items: every key is made here.

An object's identifier is 16 bytes, 6 of time and 10 random, so it is unique without coordination
and a person can see its age. Keys begin with one digit of the random part, because a bucket
spreads its load by prefix (16 prefixes take 56,000 writes a second from the start, and the
bucket splits them further by itself), and a directory is made only 16 times:

    f/hot/<id>.seg                               slices of many partitions
    f/index/<topic id>/<lane>/<id>.page          entries of one lane
    f/index/<topic id>/<lane>/<id>.node|.root    what lists pages and nodes
    f/index/<topic id>/<lane>/<id>.producers     windows of idempotent producers that are idle
    f/index/<topic id>/<lane>/<id>.segments      the compacted segments of one partition
    f/log/<topic id>/<partition>/<first offset>-<id>.parquet    records of one partition
    f/zone/<id>.marker|.probe                    by which a zone is known, and probed
"""

from typing import Final, Literal

ID_BYTES: Final = 16

IndexKind = Literal["page", "node", "root", "producers", "segments"]


def hot_segment(object_id: bytes) -> str:
    name = object_id.hex()
    return f"{name[-1]}/hot/{name}.seg"


def compacted_segment(topic_id: bytes, partition: int, first_offset: int, object_id: bytes) -> str:
    """Return the key of a Parquet segment; `partition` is that of the topic, not of the lane."""
    name = object_id.hex()
    return f"{name[-1]}/log/{topic_id.hex()}/{partition:05d}/{first_offset:020d}-{name}.parquet"


def index_object(topic_id: bytes, lane: int, object_id: bytes, kind: IndexKind) -> str:
    name = object_id.hex()
    return f"{name[-1]}/index/{topic_id.hex()}/{lane:05d}/{name}.{kind}"


def zone_marker(marker: str) -> str:
    return f"{marker[-1]}/zone/{marker}.marker"


def zone_probe(probe: str) -> str:
    return f"{probe[-1]}/zone/{probe}.probe"


def table_batch(object_id: bytes) -> str:
    """Return the key of a small segment in the table; the digit spreads and lists them."""
    name = object_id.hex()
    return f"batch/{name[-1]}/{name}"


def topic(name: str) -> str:
    return f"topic/{name}"


def gone_topic(topic_id: bytes) -> str:
    return f"gone/{topic_id.hex()}"


def head(topic_id: bytes, lane: int) -> str:
    return f"head/{topic_id.hex()}/{lane:05d}"


def gateway(gateway_id: str) -> str:
    return f"gateway/{gateway_id}"


def group(group_id: str) -> str:
    return f"group/{group_id}"


def member(group_id: str, member_id: str) -> str:
    return f"member/{group_id}/{member_id}"


def group_watch(group_id: str) -> str:
    return f"watch/{group_id}"


def group_offsets(group_id: str, topic_name: str, lane: int) -> str:
    return f"offset/{group_id}/{topic_name}/{lane:05d}"


def producer_ids() -> str:
    return "counter/producer-ids"


def producer(producer_id: int) -> str:
    return f"producer/{producer_id}"


def transaction(transactional_id: str) -> str:
    return f"txn/{transactional_id}"


def atomic_producer(producer_id: int) -> str:
    return f"atomic/{producer_id}"


def idempotency_key(digest: str) -> str:
    return f"idempotency/{digest}"


def lease(name: str) -> str:
    return f"lease/{name}"


def zone(name: str) -> str:
    return f"zone/{name}"


def verification() -> str:
    return "verification/all"
