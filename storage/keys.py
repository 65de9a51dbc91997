"""The names of all objects and metadata items: every key is made and parsed here.

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

import hashlib
import re
from typing import Final, Literal, NamedTuple, cast, get_args
from urllib.parse import quote, unquote

ID_BYTES: Final = 16
DIGITS: Final = "0123456789abcdef"

IndexKind = Literal["page", "node", "root", "producers", "segments"]
ObjectKind = Literal[
    "hot", "page", "node", "root", "segments", "producers", "parquet", "probe", "marker"
]
OBJECT_KINDS: Final[tuple[ObjectKind, ...]] = get_args(ObjectKind)

TOPICS: Final = "topic/"
GONE_TOPICS: Final = "gone/"
GATEWAYS: Final = "gateway/"
GROUPS: Final = "group/"
PRODUCERS: Final = "producer/"
TRANSACTIONS: Final = "txn/"
ATOMIC_PRODUCERS: Final = "atomic/"
IDEMPOTENCY_KEYS: Final = "idempotency/"
ZONES: Final = "zone/"
API_KEYS: Final = "key/"
QUOTAS: Final = "quota/"
QUOTA_USES: Final = "quota-use/"
USERS: Final = "user/"
SUBJECTS: Final = "subject/"
SCHEMA_CONTEXTS: Final = "schema-context/"
CONNECTORS: Final = "connector/"
CONNECT_TASKS: Final = "connect-task/"
"""The first parts of the keys of items that are listed together."""

_PLAIN: Final = re.compile(r"[a-zA-Z0-9._-]+")
_OBJECT: Final = re.compile(
    r"(?P<digit>[0-9a-f])/"
    r"(?:hot/(?P<hot>[0-9a-f]{32})\.seg"
    r"|index/[0-9a-f]{32}/[0-9]{5}/(?P<index>[0-9a-f]{32})"
    r"\.(?P<index_kind>page|node|root|segments|producers)"
    r"|log/[0-9a-f]{32}/[0-9]{5}/[0-9]{20}-(?P<parquet>[0-9a-f]{32})\.parquet"
    r"|zone/(?P<zone>[0-9a-f]{32})\.(?P<zone_kind>probe|marker))"
)


class ObjectKey(NamedTuple):
    """What the key of an object says."""

    kind: ObjectKind
    object_id: str
    """In hexadecimal digits."""

    @property
    def named_ms(self) -> int:
        """When the object was named, by the clock of its writer."""
        return int(self.object_id[:12], 16)


def parse_key(key: str) -> ObjectKey | None:
    """Return what the key of an object says; None: it is not one of ours."""
    found = _OBJECT.fullmatch(key)
    if found is None:
        return None
    kind = found["index_kind"] or found["zone_kind"] or ("hot" if found["hot"] else "parquet")
    object_id = found["hot"] or found["index"] or found["parquet"] or found["zone"]
    if object_id[-1] != found["digit"]:
        return None
    return ObjectKey(cast(ObjectKind, kind), object_id)


def object_prefixes() -> list[str]:
    """Return the first parts of all keys of objects, by kind and digit."""
    return [f"{digit}/{room}/" for room in ("hot", "index", "log", "zone") for digit in DIGITS]


def objects_ending_with(suffix: str) -> str:
    """Return what all keys of objects begin with whose identifiers end with `suffix`."""
    return f"{suffix[-1]}/" if suffix else ""


def table_batches(digit: str) -> str:
    """Return what the keys of those small segments in the table begin with that end so."""
    return f"batch/{digit}/"


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
    return f"{table_batches(name[-1])}{name}"


def topic(name: str) -> str:
    return f"{TOPICS}{name}"


def gone_topic(topic_id: bytes) -> str:
    return f"gone/{topic_id.hex()}"


def head(topic_id: bytes, lane: int) -> str:
    return f"head/{topic_id.hex()}/{lane:05d}"


def gateway(gateway_id: str) -> str:
    return f"{GATEWAYS}{gateway_id}"


def part(name: str) -> str:
    """Return a name that a client chose as one part of a key: percent-encoded where it must be.

    Letters, digits, dots, underscores and hyphens stand for themselves, and no name of these
    alone is what another one is encoded as.
    """
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")


def parse_part(text: str) -> str:
    """Return the name that `part` has made `text` of."""
    return unquote(text) if "%" in text else text


def group(group_id: str) -> str:
    return f"group/{part(group_id)}"


def parse_group(key: str) -> str:
    """Return the name of the group whose item has this key."""
    return parse_part(key.removeprefix(GROUPS))


def member(group_id: str, member_id: str) -> str:
    return f"{group_members(group_id)}{part(member_id)}"


def parse_member(group_id: str, key: str) -> str:
    return parse_part(key.removeprefix(group_members(group_id)))


def group_members(group_id: str) -> str:
    """Return what the keys of all members of a group begin with."""
    return f"member/{part(group_id)}/"


def group_watch(group_id: str) -> str:
    return f"watch/{part(group_id)}"


def all_group_offsets(group_id: str) -> str:
    """Return what the keys of all offsets of a group begin with."""
    return f"offset/{part(group_id)}/"


def group_offsets(group_id: str, topic_name: str, lane: int) -> str:
    return f"{all_group_offsets(group_id)}{topic_name}/{lane:05d}"


def producer_ids() -> str:
    return "counter/producer-ids"


def kafka_cluster() -> str:
    """Return the key of the item with the cluster id and the node ids of brokers."""
    return "counter/kafka"


def producer(producer_id: int) -> str:
    return f"producer/{producer_id}"


def transaction(transactional_id: str) -> str:
    return f"{TRANSACTIONS}{transactional_id}"


def atomic_producer(producer_id: int) -> str:
    return f"atomic/{producer_id}"


def idempotency_key(digest: str) -> str:
    return f"idempotency/{digest}"


def lease(name: str) -> str:
    return f"lease/{name}"


def zone(name: str) -> str:
    return f"{ZONES}{name}"


def doctor_folder(name: str) -> str:
    """Return what the keys of one examination of a store begin with, in zones and in the table."""
    return f"doctor/{name}"


def verification() -> str:
    return "verification/all"


def api_key(key_id: str) -> str:
    return f"{API_KEYS}{key_id}"


def user(name: str) -> str:
    return f"{USERS}{name}"


def acls_of(resource_type: str) -> str:
    """Return what the keys of all ACLs of a type of resource begin with."""
    return f"acl/{resource_type}/"


def acl(resource_type: str, pattern_type: str, name: str) -> str:
    return f"{acls_of(resource_type)}{pattern_type}/{name}"


def security_version() -> str:
    """Return the key of the item that changes with every key, ACL and quota."""
    return "security/version"


def quota(digest: str) -> str:
    """Return the key of a quota; `digest` is that of the user and the client."""
    return f"{QUOTAS}{digest}"


def quota_use(digest: str) -> str:
    return f"{QUOTA_USES}{digest}"


def data_keys_of(topic_id: bytes) -> str:
    """Return what the keys of all data keys of a topic begin with."""
    return f"data-key/{topic_id.hex()}/"


def data_key(topic_id: bytes, number: int) -> str:
    return f"{data_keys_of(topic_id)}{number:08d}"


_SHORT_CHARS_MAX: Final = 400
"""Of two names in one key: the sort key of an item of DynamoDB has at most 1,024 bytes."""


def short_part(name: str) -> str:
    """Return a name as one part of a key, or its digest if that would be too long.

    The item has the name itself: it cannot be read from the key.
    """
    text = part(name)
    if len(text) <= _SHORT_CHARS_MAX:
        return text
    return f"~{hashlib.sha256(name.encode()).hexdigest()}"


def schema_context(context: str) -> str:
    return f"{SCHEMA_CONTEXTS}{short_part(context)}"


def schema(context: str, schema_id: int) -> str:
    return f"schema/{short_part(context)}/{schema_id:010d}"


def schema_text(context: str, schema_id: int, number: int) -> str:
    """Return the key of a part of a text that is too long for the item of its schema."""
    return f"schema-text/{short_part(context)}/{schema_id:010d}.{number}"


def schema_digest(context: str, digest: str) -> str:
    return f"schema-digest/{short_part(context)}/{digest}"


def schema_guids(guid: str) -> str:
    """Return what the keys of all schemas with a GUID begin with, one of each context."""
    return f"schema-guid/{guid}/"


def schema_guid(guid: str, context: str) -> str:
    return f"{schema_guids(guid)}{short_part(context)}"


def schema_uses(context: str, schema_id: int) -> str:
    """Return what the keys of all subjects begin with that have a schema."""
    return f"schema-use/{short_part(context)}.{schema_id:010d}/"


def schema_use(context: str, schema_id: int, subject_name: str) -> str:
    return f"{schema_uses(context, schema_id)}{short_part(subject_name)}"


def subjects_of(context: str) -> str:
    """Return what the keys of all subjects of a context begin with."""
    return f"{SUBJECTS}{short_part(context)}/"


def subject(context: str, name: str) -> str:
    return f"{subjects_of(context)}{short_part(name)}"


def schema_referrers(context: str, name: str, version: int) -> str:
    """Return what the keys of all versions begin with that refer to this one."""
    return f"schema-ref/{short_part(f':{context}:{name}')}/{version:010d}."


def schema_referrer(context: str, name: str, version: int, by: str, by_version: int) -> str:
    """`by` is the qualified name of the subject that refers."""
    digest = hashlib.sha256(by.encode()).hexdigest()[:32]
    return f"{schema_referrers(context, name, version)}{digest}.{by_version:010d}"


def connector(name: str) -> str:
    return f"{CONNECTORS}{short_part(name)}"


def connect_tasks_of(connector_name: str) -> str:
    """Return what the keys of all tasks of a connector begin with."""
    return f"{CONNECT_TASKS}{short_part(connector_name)}/"


def connect_task(connector_name: str, number: int) -> str:
    return f"{connect_tasks_of(connector_name)}{number:05d}"


def connect_offsets_of(connector_name: str) -> str:
    """Return what the keys of all positions of a source begin with."""
    return f"connect-offset/{short_part(connector_name)}/"


def connect_offset(connector_name: str, digest: str) -> str:
    """Return the key of a position; `digest` is that of the source's partition."""
    return f"{connect_offsets_of(connector_name)}{digest}"


def redrives_of(topic_id: bytes) -> str:
    """Return what the keys of all that was sent again of a topic begin with."""
    return f"redrive/{topic_id.hex()}/"


REDRIVEN: Final = "redriven/"


def redriven(topic_id: bytes) -> str:
    """Return the key that says that letters of a topic were sent again; these can be listed."""
    return f"{REDRIVEN}{topic_id.hex()}"


def redrive(topic_id: bytes, partition: int, destination: str) -> str:
    """Return the key of what was sent again of a partition to `destination`."""
    digest = hashlib.sha256(destination.encode()).hexdigest()[:32]
    return f"{redrives_of(topic_id)}{partition:06d}/{digest}"
