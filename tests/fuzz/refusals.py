"""Recipes for the refusals of a healthy gateway, one for each reason."""

from typing import Any

from tests.fuzz.deployment import Deployment
from tests.fuzz.good_requests import (
    DATA_KEY,
    DEAD_LETTERS,
    GROUP,
    OFFSETS,
    PARTITION,
    RECORDS,
    Operation,
    Request,
)
from tests.fuzz.recipes import (
    ABORT,
    ALTER,
    ATOMICALLY,
    BEATS,
    BEGIN,
    COMMIT,
    COMMIT_OFFSETS,
    CREATE,
    DELETE_RECORDS,
    DESCRIBE,
    FETCH,
    JOIN,
    PRODUCE,
    RESET,
    Names,
    Recipe,
    Recipes,
    of,
)

LONG = "v" * 1_100_000
SEGMENTS = ("GET", f"{PARTITION}/segments")
RANGE = ("GET", f"{PARTITION}/segments/{{range}}")


def _body(**fields: Any) -> Recipe:
    return Recipe(change=Request(json=fields))


def _record(**fields: Any) -> dict[str, Any]:
    return {"records": [{"topic": "t", **fields}]}


TOPICS: Recipes = {
    (CREATE, "INVALID_TOPIC_EXCEPTION"): _body(name="a b"),
    (CREATE, "INVALID_PARTITIONS"): _body(name="new", partitions=0),
    (CREATE, "INVALID_REPLICATION_FACTOR"): _body(name="new", replication_factor=9),
    (CREATE, "INVALID_CONFIG"): _body(name="new", config={"nonsense": 1}),
    (CREATE, "TOPIC_ALREADY_EXISTS"): _body(name="t"),
    (ALTER, "INVALID_PARTITIONS"): _body(partitions=1),
    (ALTER, "INVALID_REPLICATION_FACTOR"): _body(replication_factor=9),
    (ALTER, "INVALID_CONFIG"): _body(config={"retention.ms": "soon"}),
}


async def _compacted(deployed: Deployment, _: Names) -> None:
    config = {"cleanup.policy": "compact"}
    await deployed.done("POST", "/v1/topics", json={"name": "c", "config": config})


async def _without_addresses(deployed: Deployment, _: Names) -> None:
    deployed.bucket.has_addresses = deployed.other_bucket.has_addresses = False


LOGS: Recipes = {
    (FETCH, "OFFSET_OUT_OF_RANGE"): Recipe(change=Request(params={"offset": "99"})),
    (FETCH, "NOT_ACCEPTABLE"): Recipe(change=Request(headers={"accept": "text/html"})),
    (FETCH, "MESSAGE_TOO_LARGE"): Recipe(settings={"answer_bytes_max": 10}),
    (SEGMENTS, "OFFSET_OUT_OF_RANGE"): Recipe(change=Request(params={"offset": "99"})),
    (SEGMENTS, "UNSUPPORTED_OPERATION"): Recipe(before=_without_addresses),
    (RANGE, "OFFSET_OUT_OF_RANGE"): Recipe(change=Request(path={"range": "99-00"})),
    (RANGE, "OBJECT_MISSING"): Recipe(bucket="empty"),
    (RANGE, "UNSUPPORTED_OPERATION"): Recipe(settings={"answer_bytes_max": 1}),
    (DELETE_RECORDS[0], "OFFSET_OUT_OF_RANGE"): Recipe(
        change=Request(params={"before_offset": "99"})
    ),
    (DELETE_RECORDS[1], "OFFSET_OUT_OF_RANGE"): _body(
        partitions=[{"partition": 0, "before_offset": 99}]
    ),
    **of(
        DELETE_RECORDS,
        "POLICY_VIOLATION",
        Recipe(change=Request(path={"topic": "c"}), before=_compacted),
    ),
}


async def _key_lost(deployed: Deployment, _: Names) -> None:
    """The key of an encrypted topic, which has records of several times, cannot be unwrapped."""
    records = [{"value": "v", "timestamp": stamp} for stamp in (1000, 2000, 3000)]
    path = "/v1/topics/sealed/partitions/1/records"
    await deployed.done("POST", path, json={"records": records})
    behind = {"offsets": [{"topic": "sealed", "partition": 1, "offset": 1}]}
    await deployed.done("POST", "/v1/groups/behind/offsets", json=behind)
    deployed.kek.unlink()
    await deployed.restart()


REDRIVE: Operation = ("POST", f"{DEAD_LETTERS}/redrive")

SEALED = {"topic": "sealed", "partition": 1}

SEALED_TOPICS: Recipes = {
    **of(
        [*PRODUCE, FETCH, ("POST", DATA_KEY)],
        "ENCRYPTION_KEY_UNAVAILABLE",
        Recipe(change=Request(path=SEALED), before=_key_lost),
    ),
    (("GET", f"{PARTITION}/offsets"), "ENCRYPTION_KEY_UNAVAILABLE"): Recipe(
        change=Request(path=SEALED, params={"at": "1500"}), before=_key_lost
    ),
    (RESET, "ENCRYPTION_KEY_UNAVAILABLE"): Recipe(
        change=Request(path={"group": "behind"}, json={"to": "timestamp", "timestamp": 1500}),
        before=_key_lost,
    ),
    **of(
        [("GET", DEAD_LETTERS), ("GET", f"{DEAD_LETTERS}/letters"), REDRIVE],
        "ENCRYPTION_KEY_UNAVAILABLE",
        Recipe(change=Request(path={"topic": "sealed"}), before=_key_lost),
    ),
    (ATOMICALLY, "ENCRYPTION_KEY_UNAVAILABLE"): Recipe(
        change=Request(json={"records": [{"topic": "sealed", "value": "v"}]}), before=_key_lost
    ),
}


async def _numbered(deployed: Deployment, names: Names) -> None:
    """A producer has written seven numbered batches of one record each."""
    made = await deployed.done("POST", "/v1/producers")
    names["producer"] = made["producer_id"]
    for number in range(7):
        headers = _numbers(number, names["producer"])
        await deployed.done(
            "POST", "/v1/topics/t/partitions/0/records", json=RECORDS, headers=headers
        )


async def _numbered_calls(deployed: Deployment, names: Names) -> None:
    made = await deployed.done("POST", "/v1/producers")
    names["producer"] = made["producer_id"]
    for number in range(7):
        headers = _numbers(number, names["producer"])
        await deployed.done("POST", "/v1/atomic", json=_record(value="v"), headers=headers)


def _numbers(sequence: int, producer: Any = "{producer}", epoch: int = 0) -> dict[str, str]:
    return {
        "riacho-producer-id": str(producer),
        "riacho-producer-epoch": str(epoch),
        "riacho-sequence": str(sequence),
    }


async def _renewed(deployed: Deployment, names: Names) -> None:
    """A new instance of the transactional id was announced."""
    names["producer"] = names["transaction"].split(".")[1]
    await deployed.done("POST", "/v1/transactions", json={"transactional_id": "x"})


async def _committed(deployed: Deployment, names: Names) -> None:
    await deployed.done("POST", f"/v1/transactions/{names['transaction']}/commit")


async def _aborted(deployed: Deployment, names: Names) -> None:
    await deployed.done("POST", f"/v1/transactions/{names['transaction']}/abort")


async def _wide(deployed: Deployment, _: Names) -> None:
    """A topic in which every partition is a lane of its own."""
    config = {"lane.partitions": 1}
    new = {"name": "w", "partitions": 101, "config": config}
    await deployed.done("POST", "/v1/topics", json=new)


async def _one_zone_is_down(deployed: Deployment, _: Names) -> None:
    """A topic that needs two zones in sync; one refuses writes."""
    config = {"min.insync.replicas": 2}
    new = {"name": "r", "replication_factor": 2, "config": config}
    await deployed.done("POST", "/v1/topics", json=new)
    deployed.other_bucket.fault = "down"


async def _letters_and_one_zone_is_down(deployed: Deployment, names: Names) -> None:
    """Letters can be read from the zone that is left, and not be written to two."""
    await _one_zone_is_down(deployed, names)
    deployed.other_bucket.fault = None
    for _ in range(4):
        await deployed.done("POST", "/v1/topics/r/records", json=RECORDS)
    deployed.other_bucket.fault = "down"


IN_TRANSACTION = {"riacho-transaction": "{transaction}"}


ONE: dict[str, Any] = {"records": [{"value": 1}]}


async def _with_schema(deployed: Deployment, _: Names) -> None:
    await deployed.done("POST", "/subjects/texts/versions", json={"schema": '"string"'})


EVERYWHERE = [{"partition": partition, "value": "v"} for partition in range(101)]

PRODUCING: Recipes = {
    **of(PRODUCE, "INVALID_REQUIRED_ACKS", Recipe(change=Request(params={"acks": "7"}))),
    **of(
        [*PRODUCE, ATOMICALLY],
        "UNKNOWN_PRODUCER_ID",
        Recipe(change=Request(headers=_numbers(0, 999_998))),
    ),
    **of(PRODUCE, "INVALID_RECORD", _body(records=[{"headers": {"n" * 300: "v"}}])),
    **of(PRODUCE, "MESSAGE_TOO_LARGE", _body(records=[{"value": LONG}])),
    **of(PRODUCE, "UNKNOWN_SCHEMA", _body(**ONE, value_schema_id=9)),
    **of(PRODUCE, "INVALID_SCHEMA", _body(**ONE, value_schema='"none"')),
    **of(
        PRODUCE,
        "INCOMPATIBLE_SCHEMA",
        Recipe(
            change=Request(json={**ONE, "value_schema": '"int"', "value_subject": "texts"}),
            before=_with_schema,
        ),
    ),
    **of(
        PRODUCE,
        "TRANSACTIONAL_ID_NOT_FOUND",
        Recipe(change=Request(headers={"riacho-transaction": "nobody.1.0"})),
    ),
    **of(
        PRODUCE,
        "INVALID_PRODUCER_EPOCH",
        Recipe(change=Request(headers=IN_TRANSACTION), before=_renewed),
    ),
    **of(
        PRODUCE,
        "INVALID_TXN_STATE",
        Recipe(change=Request(headers=IN_TRANSACTION), before=_aborted),
    ),
    **of(
        PRODUCE,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        Recipe(
            change=Request(headers=_numbers(99), json={"records": [{"partition": 0}]}),
            before=_numbered,
        ),
    ),
    **of(
        PRODUCE,
        "DUPLICATE_SEQUENCE_NUMBER",
        Recipe(
            change=Request(headers=_numbers(0), json={"records": [{"partition": 0}]}),
            before=_numbered,
        ),
    ),
    (PRODUCE[0], "TRANSACTION_TOO_LARGE"): Recipe(
        change=Request(path={"topic": "w"}, headers=IN_TRANSACTION, json={"records": EVERYWHERE}),
        before=_wide,
    ),
    **of(
        PRODUCE,
        "NOT_ENOUGH_REPLICAS",
        Recipe(change=Request(path={"topic": "r"}), before=_one_zone_is_down),
    ),
}

AS_STRANGER = {"group": "g", **OFFSETS}
AS_OLD = {"group": "g", "generation": 99, "member_id": "{member}", **OFFSETS}

INSTANCE = {"riacho-producer-id": "1", "riacho-producer-epoch": "0"}
"""For the existing transactional id."""


async def _with_key(deployed: Deployment, _: Names) -> None:
    headers = {"idempotency-key": "k"}
    await deployed.done("POST", "/v1/atomic", json=_record(value="other"), headers=headers)


ATOMICS: Recipes = {
    (ATOMICALLY, "INVALID_TOPIC_EXCEPTION"): _body(records=[{"topic": "a b"}]),
    (ATOMICALLY, "UNKNOWN_TOPIC_OR_PARTITION"): _body(records=[{"topic": "nowhere"}]),
    (ATOMICALLY, "INVALID_RECORD"): _body(**_record(headers={"n" * 300: "v"})),
    (ATOMICALLY, "MESSAGE_TOO_LARGE"): _body(**_record(value=LONG)),
    (ATOMICALLY, "UNKNOWN_MEMBER_ID"): _body(offsets=AS_STRANGER),
    (ATOMICALLY, "ILLEGAL_GENERATION"): _body(offsets=AS_OLD),
    (ATOMICALLY, "IDEMPOTENCY_KEY_REUSED"): Recipe(
        change=Request(headers={"idempotency-key": "k"}), before=_with_key
    ),
    (ATOMICALLY, "INVALID_TXN_STATE"): Recipe(change=Request(headers=INSTANCE)),
    (ATOMICALLY, "INVALID_PRODUCER_EPOCH"): Recipe(
        change=Request(headers=INSTANCE), before=_renewed
    ),
    (ATOMICALLY, "OUT_OF_ORDER_SEQUENCE_NUMBER"): Recipe(
        change=Request(headers=_numbers(99)), before=_numbered_calls
    ),
    (ATOMICALLY, "DUPLICATE_SEQUENCE_NUMBER"): Recipe(
        change=Request(headers=_numbers(0)), before=_numbered_calls
    ),
    (ATOMICALLY, "TRANSACTION_TOO_LARGE"): Recipe(
        change=Request(json={"records": [{"topic": "w", **one} for one in EVERYWHERE]}),
        before=_wide,
    ),
    (REDRIVE, "NOT_ENOUGH_REPLICAS"): Recipe(
        change=Request(path={"topic": "r"}, json={"to": "topic:r"}),
        before=_letters_and_one_zone_is_down,
    ),
    (ATOMICALLY, "NOT_ENOUGH_REPLICAS"): Recipe(
        change=Request(json={"records": [{"topic": "r"}]}), before=_one_zone_is_down
    ),
}

GROUPS: Recipes = {
    (("DELETE", GROUP), "NON_EMPTY_GROUP"): Recipe(change=Request(path={"group": "g"})),
    (RESET, "NON_EMPTY_GROUP"): Recipe(change=Request(path={"group": "g"})),
    (RESET, "INVALID_TOPIC_EXCEPTION"): _body(to="earliest", topics=["a b"]),
    (RESET, "UNKNOWN_TOPIC_OR_PARTITION"): _body(to="earliest", topics=["nowhere"]),
    (JOIN, "INCONSISTENT_GROUP_PROTOCOL"): _body(topics=["t"], assignor="roundrobin"),
    **of(BEATS, "ILLEGAL_GENERATION", _body(generation=99)),
    (COMMIT_OFFSETS, "UNKNOWN_MEMBER_ID"): Recipe(change=Request(path={"group": "g"})),
    (COMMIT_OFFSETS, "ILLEGAL_GENERATION"): Recipe(
        change=Request(
            path={"group": "g"}, json={"generation": 99, "member_id": "{member}", **OFFSETS}
        )
    ),
    (COMMIT_OFFSETS, "INVALID_TOPIC_EXCEPTION"): _body(
        offsets=[{"topic": "a b", "partition": 0, "offset": 1}]
    ),
    (COMMIT_OFFSETS, "UNKNOWN_TOPIC_OR_PARTITION"): _body(
        offsets=[{"topic": "nowhere", "partition": 0, "offset": 1}]
    ),
}


async def _renewed_often(deployed: Deployment, names: Names) -> None:
    for _ in range(40):
        await _renewed(deployed, names)


async def _staged_for_two_zones(deployed: Deployment, names: Names) -> None:
    """Records are staged in two zones that must be in sync, and one has left the ISR since."""
    new = {"name": "r", "replication_factor": 2}
    await deployed.done("POST", "/v1/topics", json=new)
    headers = {"riacho-transaction": names["transaction"]}
    await deployed.done("POST", "/v1/topics/r/records", json=RECORDS, headers=headers)
    await deployed.done("PATCH", "/v1/topics/r", json={"config": {"min.insync.replicas": 2}})
    deployed.other_bucket.fault = "down"
    await deployed.done("POST", "/v1/topics/r/records", json=RECORDS, params={"acks": "1"})


TRANSACTIONS: Recipes = {
    (BEGIN, "INVALID_TRANSACTION_TIMEOUT"): _body(transactional_id="other", timeout_ms=0),
    (COMMIT, "INVALID_TXN_STATE"): Recipe(before=_aborted),
    (ABORT, "INVALID_TXN_STATE"): Recipe(before=_committed),
    **of([COMMIT, ABORT], "INVALID_PRODUCER_EPOCH", Recipe(before=_renewed)),
    (DESCRIBE, "INVALID_PRODUCER_EPOCH"): Recipe(before=_renewed_often),
    (BEGIN, "INVALID_PRODUCER_EPOCH"): Recipe(
        change=Request(json={"transactional_id": "x", "producer_id": 1, "epoch": 0}),
        before=_renewed,
    ),
    (BEGIN, "INVALID_TXN_STATE"): _body(transactional_id="x", producer_id=1, epoch=0),
    (COMMIT, "UNKNOWN_MEMBER_ID"): _body(offsets=AS_STRANGER),
    (COMMIT, "ILLEGAL_GENERATION"): _body(offsets=AS_OLD),
    (COMMIT, "NOT_ENOUGH_REPLICAS"): Recipe(before=_staged_for_two_zones),
    (COMMIT, "TRANSACTION_TOO_LARGE"): Recipe(
        change=Request(
            json={
                "offsets": {
                    "group": "empty",
                    "offsets": [
                        {"topic": "w", "partition": partition, "offset": 0}
                        for partition in range(100)
                    ],
                }
            }
        ),
        before=_wide,
    ),
    (COMMIT, "INVALID_TOPIC_EXCEPTION"): _body(
        offsets={"group": "empty", "offsets": [{"topic": "a b", "partition": 0, "offset": 1}]}
    ),
    (COMMIT, "UNKNOWN_TOPIC_OR_PARTITION"): _body(
        offsets={"group": "empty", "offsets": [{"topic": "no", "partition": 0, "offset": 1}]}
    ),
}

ALL: Recipes = {**TOPICS, **LOGS, **SEALED_TOPICS, **PRODUCING, **ATOMICS, **GROUPS, **TRANSACTIONS}
