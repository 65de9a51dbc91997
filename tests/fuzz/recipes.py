"""How to provoke every documented error: by a request, or by a real fault.

A recipe changes the good request of an operation, what exists before, the settings, or the stores.
Nothing in between is replaced.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.routes.table import ROUTES
from storage import keys
from storage.stores.metadata import Delete
from tests.fuzz.deployment import BucketFault, Deployment, TableFault
from tests.fuzz.good_requests import (
    DATA_KEY,
    GOOD,
    GROUP,
    MEMBER,
    PARTITION,
    TOPIC,
    TRANSACTION,
    Operation,
    Request,
)

OF_OTHERS = {(each.method, each.path) for each in ROUTES if each.api is not None}

Names = dict[str, Any]
Before = Callable[[Deployment, Names], Awaitable[None]]


async def _nothing(_: Deployment, __: Names) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The differences from the successful case."""

    change: Request = field(default_factory=Request)
    """Merged into the good request: other fields stay."""
    before: Before = _nothing
    settings: Mapping[str, Any] = field(default_factory=dict)
    table: TableFault | None = None
    bucket: BucketFault | None = None


Recipes = dict[tuple[Operation, str], Recipe]

OURS = tuple(op for op in GOOD if op not in OF_OTHERS)
"""Errors of calls of other APIs have their codes: tests/service/registry and .../connect."""

QUIET = (("GET", "/healthy"), ("GET", "/metrics"))
"""Operations without input and without calls to stores have no errors."""

READY: Operation = ("GET", "/ready")
WHO: Operation = ("GET", "/v1/whoami")
NEW_KEY: Operation = ("POST", "/v1/keys")
PRODUCE = (("POST", f"{TOPIC}/records"), ("POST", f"{PARTITION}/records"))
DELETE_RECORDS = (("DELETE", f"{PARTITION}/records"), ("POST", f"{TOPIC}/delete-records"))
FETCH: Operation = ("GET", f"{PARTITION}/records")
FETCH_MANY: Operation = ("POST", "/v1/fetch")
BEATS = (("POST", f"{MEMBER}/heartbeat"), ("POST", f"{MEMBER}/poll"))
COMMIT: Operation = ("POST", f"{TRANSACTION}/commit")
ABORT: Operation = ("POST", f"{TRANSACTION}/abort")
DESCRIBE: Operation = ("GET", TRANSACTION)
BEGIN: Operation = ("POST", "/v1/transactions")
INIT: Operation = ("POST", "/v1/producers")
ATOMICALLY: Operation = ("POST", "/v1/atomic")
CREATE: Operation = ("POST", "/v1/topics")
ALTER: Operation = ("PATCH", TOPIC)
COMMIT_OFFSETS: Operation = ("POST", f"{GROUP}/offsets")
RESET: Operation = ("POST", f"{GROUP}/reset")
JOIN: Operation = ("POST", f"{GROUP}/members")
OPEN_KEY: Operation = ("POST", DATA_KEY)
ADMIN_BODIES = (CREATE, ALTER, ("POST", f"{TOPIC}/delete-records"))
HOT_BODIES = tuple(
    op for op in OURS if op[0] in ("POST", "PUT") and op not in (*ADMIN_BODIES, OPEN_KEY)
)
WRITES = tuple(op for op in OURS if op[0] != "GET" and op not in (FETCH_MANY, *BEATS, OPEN_KEY))


NEED_HEADS = (
    *PRODUCE,
    *DELETE_RECORDS,
    FETCH,
    *(("GET", f"{PARTITION}/{what}") for what in ("offsets", "segments", "segments/{range}")),
    ("GET", f"{TOPIC}/partitions"),
    ALTER,
    ("GET", f"{GROUP}/lag"),
    RESET,
    COMMIT,
    ATOMICALLY,
    *(op for op in OURS if op[1].startswith("/v1/dlq")),
)


def of(operations: Sequence[Operation], code: str, recipe: Recipe) -> Recipes:
    return {(operation, code): recipe for operation in operations}


def _but(*others: Operation) -> list[Operation]:
    return [op for op in OURS if op not in (*QUIET, *others)]


async def _time_passes(deployed: Deployment, _: Names) -> None:
    """Caches have expired, and transactions of a minute have timed out."""
    deployed.time.now_s += 1000


async def _others_hold(deployed: Deployment, _: Names) -> None:
    """Other requests hold as many bytes as this gateway allows."""
    deployed.gateway.admission.hold().grow_to(deployed.settings.held_bytes_max)


async def _is_stopping(deployed: Deployment, _: Names) -> None:
    deployed.gateway.drain()
    await deployed.gateway.batcher.aclose()


async def _has_grown(deployed: Deployment, _: Names) -> None:
    """A group whose topic got new partitions must be assigned them, which is a write."""
    await deployed.done("PATCH", "/v1/topics/t", json={"partitions": 5})
    deployed.time.now_s += 1000


async def _restarted(deployed: Deployment, _: Names) -> None:
    """The gateway has no caches: no topics, transactions or reserved producer ids."""
    await deployed.restart()


async def _secured(deployed: Deployment, _: Names) -> None:
    """The gateway reads the table to learn who calls."""
    await deployed.restart(is_secured=True)


async def _hurried(deployed: Deployment, _: Names) -> None:
    """The host wants an answer soon, as Lambda does."""
    deployed.limit(answer_s_max=0.05)
    await deployed.restart()


async def _head_lost(deployed: Deployment, _: Names) -> None:
    """The table has lost the heads of a topic, and the gateway has none cached."""
    topic = await deployed.gateway.topics.read("t")
    for lane in topic.lanes:
        key = keys.head(topic.topic_id, lane)
        item = await deployed.table.inner.get(key)
        assert item is not None
        await deployed.table.inner.transact([Delete(key, item.version)])
    await deployed.restart()


GENERAL: Recipes = {
    (FETCH_MANY, "REQUEST_TIMED_OUT"): Recipe(before=_hurried, table="hanging"),
    **of(_but(READY), "INVALID_REQUEST", Recipe(change=Request(params={"nonsense": "1"}))),
    **of(_but(FETCH_MANY, WHO), "STORAGE_UNAVAILABLE", Recipe(before=_restarted, table="down")),
    **of(
        _but(FETCH_MANY, READY, CREATE, BEGIN, WHO, NEW_KEY, ("GET", f"{GROUP}/offsets")),
        "CORRUPT_MESSAGE",
        Recipe(before=_restarted, table="damaged"),
    ),
    **of(
        [("GET", f"{GROUP}/offsets")],
        "CORRUPT_MESSAGE",
        Recipe(change=Request(path={"group": "empty"}), before=_restarted, table="damaged"),
    ),
    **of(
        [BEGIN],
        "CORRUPT_MESSAGE",
        Recipe(change=Request(json={"transactional_id": "x"}), before=_restarted, table="damaged"),
    ),
    **of(_but(WHO), "UNKNOWN_SERVER_ERROR", Recipe(before=_restarted, table="buggy")),
    (WHO, "UNKNOWN_SERVER_ERROR"): Recipe(before=_secured, table="buggy"),
    **of([op for op in WRITES if op != INIT], "REQUEST_TIMED_OUT", Recipe(table="silent")),
    **of([op for op in WRITES if op != INIT], "CONCURRENT_COMMITS", Recipe(table="contended")),
    **of([INIT], "REQUEST_TIMED_OUT", Recipe(before=_restarted, table="silent")),
    **of([INIT], "CONCURRENT_COMMITS", Recipe(before=_restarted, table="contended")),
    **of(
        _but(FETCH_MANY, READY, WHO),
        "METADATA_DAMAGED",
        Recipe(before=_restarted, table="malformed"),
    ),
    **of([op for op in WRITES if op != INIT], "METADATA_LOCKED", Recipe(table="locked")),
    **of([INIT], "METADATA_LOCKED", Recipe(before=_restarted, table="locked")),
    **of(BEATS, "METADATA_LOCKED", Recipe(before=_has_grown, table="locked")),
    **of([DESCRIBE], "METADATA_LOCKED", Recipe(before=_time_passes, table="locked")),
    **of(NEED_HEADS, "HEAD_MISSING", Recipe(before=_head_lost)),
    **of(BEATS, "REQUEST_TIMED_OUT", Recipe(before=_has_grown, table="silent")),
    **of(BEATS, "CONCURRENT_COMMITS", Recipe(before=_has_grown, table="contended")),
    **of([DESCRIBE], "REQUEST_TIMED_OUT", Recipe(before=_time_passes, table="silent")),
    **of([DESCRIBE], "CONCURRENT_COMMITS", Recipe(before=_time_passes, table="contended")),
    **of(
        [*ADMIN_BODIES, *HOT_BODIES, OPEN_KEY],
        "UNSUPPORTED_MEDIA_TYPE",
        Recipe(change=Request(content=b"<x/>", headers={"content-type": "text/xml"})),
    ),
    **of(
        ADMIN_BODIES,
        "REQUEST_TOO_LARGE",
        Recipe(
            change=Request(
                content=b" " * (1024 * 1024 + 1), headers={"content-type": "application/json"}
            )
        ),
    ),
    **of(
        HOT_BODIES,
        "REQUEST_TOO_LARGE",
        Recipe(
            change=Request(content=b" " * 1001, headers={"content-type": "application/json"}),
            settings={"request_bytes_max": 1000},
        ),
    ),
    **of(
        HOT_BODIES,
        "THROTTLING_QUOTA_EXCEEDED",
        Recipe(change=Request(json={}), before=_others_hold),
    ),
    **of([READY, *PRODUCE], "SHUTTING_DOWN", Recipe(before=_is_stopping)),
    **of(
        [
            FETCH,
            ("GET", f"{PARTITION}/offsets"),
            ("GET", f"{GROUP}/lag"),
            *(op for op in OURS if op[1].startswith("/v1/dlq/")),
        ],
        "OBJECT_MISSING",
        Recipe(bucket="empty"),
    ),
}

NOWHERE = Recipe(change=Request(path={"topic": "nowhere"}))
NOBODY = Recipe(change=Request(path={"group": "nobody"}))
NO_KEY = Recipe(change=Request(path={"key": "nothing"}))
STRANGER = Recipe(change=Request(path={"member": "stranger"}))

MISSING: Recipes = {
    **of(
        [op for op in OURS if "{topic}" in op[1]],
        "INVALID_TOPIC_EXCEPTION",
        Recipe(change=Request(path={"topic": "a b"})),
    ),
    **of([op for op in OURS if "{topic}" in op[1]], "UNKNOWN_TOPIC_OR_PARTITION", NOWHERE),
    **of(
        [("GET", GROUP), ("DELETE", GROUP), ("GET", f"{GROUP}/lag")],
        "GROUP_ID_NOT_FOUND",
        NOBODY,
    ),
    **of([("DELETE", MEMBER), *BEATS], "UNKNOWN_MEMBER_ID", STRANGER),
    **of([op for op in OURS if "{key}" in op[1]], "RESOURCE_NOT_FOUND", NO_KEY),
    **of(
        [DESCRIBE, COMMIT, ABORT],
        "TRANSACTIONAL_ID_NOT_FOUND",
        Recipe(change=Request(path={"transaction": "nobody.1.0"})),
    ),
}
