"""DynamoDB with lost replies and throttling: a real emulator behind a lossy proxy.

No emulator throttles or answers `TransactionConflict`, so those answers are injected.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from storage.errors import MetadataConflict, OutcomeUnknown, StoreUnavailable
from storage.stores.dynamodb.items import refusal, write_request
from storage.stores.dynamodb.table import TABLE_ATTEMPTS_MAX, DynamoMetadata
from storage.stores.metadata import Check, Delete, Op, Put, Versioned
from tests.storage.helpers import servers
from tests.storage.helpers.lossy_proxy import Fault, LossyProxy, answer

pytestmark = [pytest.mark.anyio, pytest.mark.aws]

PUT, DELETE, TRANSACT = "DynamoDB_20120810.PutItem", ".DeleteItem", ".TransactWriteItems"


def failed(status: int, code: str, **members: Any) -> bytes:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected", **members}
    return answer(status, json.dumps(body), "application/x-amz-json-1.0")


def cancelled(*codes: str) -> bytes:
    reasons = [{"Code": code} for code in codes]
    return failed(400, "TransactionCanceledException", CancellationReasons=reasons)


THROTTLES = [
    failed(400, "ProvisionedThroughputExceededException"),
    failed(400, "ThrottlingException"),
    failed(400, "RequestLimitExceeded"),
    failed(400, "TransactionConflictException"),
    failed(400, "TransactionInProgressException"),
]
INTERNAL = failed(500, "InternalServerError")
UNAVAILABLE = failed(503, "ServiceUnavailable")
GARBLED = answer(200, '{"Att', "application/x-amz-json-1.0", "x-amz-crc32: 1\r\n")

SILENT = pytest.mark.parametrize(
    "fault", [{"lose_reply": True}, {"answer_after": INTERNAL}, {"answer_after": GARBLED}]
)


Version = Callable[[int], str]


@pytest.fixture
def v() -> Version:
    # The server remembers tokens of transactions for all tables of an account.
    prefix = secrets.token_hex(8)
    return lambda number: f"{prefix}-{number}"


@pytest.fixture
def table() -> str:
    return f"lossy-{secrets.token_hex(6)}"


@pytest.fixture
async def proxy(ministack: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(ministack) as running:
        yield running


@pytest.fixture
async def store(
    proxy: LossyProxy, v: Version, table: str, aws_environment: None
) -> AsyncIterator[DynamoMetadata]:
    """A store whose versions are `v(0)`, `v(1)`, ... so that tests can predict them."""
    versions = map(v, count())
    made = DynamoMetadata(table, versions.__next__, endpoint=proxy.url, sleep=no_sleep)
    await made.create_table()
    proxy.seen.clear()
    yield made
    await made.close()


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


@SILENT
async def test_a_put_whose_reply_is_lost_succeeds(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, fault: dict[str, Any]
) -> None:
    proxy.faults.append(Fault(PUT, **fault))
    assert await store.transact([Put("topic/a", b"1", None)]) == {"topic/a": v(0)}

    proxy.faults.append(Fault(PUT, **fault))
    assert await store.transact([Put("topic/a", b"2", v(0))]) == {"topic/a": v(1)}

    assert await store.get("topic/a") == Versioned(b"2", v(1))
    assert proxy.count(PUT) == 4


@SILENT
async def test_a_delete_whose_reply_is_lost_succeeds(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, fault: dict[str, Any]
) -> None:
    await store.transact([Put("topic/a", b"1", None)])
    proxy.faults.append(Fault(DELETE, **fault))

    assert await store.transact([Delete("topic/a", v(0))]) == {}

    assert await store.get("topic/a") is None
    assert proxy.count(DELETE) == 2


@SILENT
async def test_a_transaction_whose_reply_is_lost_is_applied_once(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, fault: dict[str, Any]
) -> None:
    await store.transact([Put("topic/old", b"", None)])
    proxy.faults.append(Fault(TRANSACT, **fault))

    versions = await store.transact(
        [Put("topic/a", b"1", None), Put("topic/b", b"2", None), Delete("topic/old", v(0))]
    )

    assert versions == {"topic/a": v(1), "topic/b": v(1)}
    assert [key for key, _ in await store.list("topic/")] == ["topic/a", "topic/b"]
    first, second = (request.body for request in proxy.seen if TRANSACT.encode() in request.head)
    assert json.loads(first)["ClientRequestToken"] == json.loads(second)["ClientRequestToken"]


async def test_a_lost_transaction_is_recognised_even_without_its_token(
    store: DynamoMetadata, proxy: LossyProxy, v: Version
) -> None:
    """Some servers ignore the token: then the retry conflicts with our own items."""
    ops = [Put("topic/a", b"1", None), Put("topic/b", b"2", None)]
    reasons = [
        {"Code": "ConditionalCheckFailed", "Item": item("topic", "a", v(0))},
        {"Code": "ConditionalCheckFailed", "Item": item("topic", "b", v(0))},
    ]
    refused = failed(400, "TransactionCanceledException", CancellationReasons=reasons)
    proxy.faults += [Fault(TRANSACT, lose_reply=True), Fault(TRANSACT, answer=refused)]

    assert await store.transact(ops) == {"topic/a": v(0), "topic/b": v(0)}


def item(collection: str, rest: str, version: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": collection}, "sk": {"S": rest}, "v": {"B": "MQ=="}, "t": {"S": version}}


async def test_a_lost_write_that_was_overwritten_has_an_unknown_outcome(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, table: str, ministack: str
) -> None:
    """The write happened, another process changed the item, and only then do we retry."""
    gate = asyncio.Event()
    again = Fault(PUT, gate=gate)
    proxy.faults += [Fault(PUT, lose_reply=True), again]
    writing = asyncio.create_task(store.transact([Put("topic/a", b"1", None)]))
    other = DynamoMetadata(table, lambda: "other", endpoint=ministack)
    await again.reached.wait()
    await other.transact([Put("topic/a", b"2", v(0))])
    gate.set()

    with pytest.raises(OutcomeUnknown) as caught:
        await writing

    assert caught.value.may_have_applied
    assert await store.get("topic/a") == Versioned(b"2", "other")
    await other.close()


async def test_a_write_that_never_arrived_is_retried(
    store: DynamoMetadata, proxy: LossyProxy, v: Version
) -> None:
    proxy.faults.append(Fault(PUT, refuse=True, times=2))

    assert await store.transact([Put("topic/a", b"1", None)]) == {"topic/a": v(0)}


async def test_a_conflict_after_an_unanswered_attempt_has_an_unknown_outcome(
    store: DynamoMetadata, proxy: LossyProxy
) -> None:
    """Our request was lost, but the store cannot know that it was not applied."""
    await store.transact([Put("topic/a", b"1", None)])
    proxy.faults.append(Fault(PUT, refuse=True))

    with pytest.raises(OutcomeUnknown):
        await store.transact([Put("topic/a", b"2", None)])


async def test_a_conflict_after_a_throttle_is_a_conflict(
    store: DynamoMetadata, proxy: LossyProxy, v: Version
) -> None:
    await store.transact([Put("topic/a", b"1", None)])
    proxy.faults.append(Fault(PUT, answer=THROTTLES[0], times=2))

    with pytest.raises(MetadataConflict) as conflict:
        await store.transact([Put("topic/a", b"2", None)])

    assert conflict.value.current == {"topic/a": Versioned(b"1", v(0))}


@pytest.mark.parametrize("reply", [*THROTTLES, INTERNAL, UNAVAILABLE])
async def test_throttles_and_server_errors_are_retried(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, reply: bytes
) -> None:
    proxy.faults.append(Fault("X-Amz-Target", answer=reply, times=3))
    await store.transact([Put("topic/a", b"1", None)])
    proxy.faults.append(Fault("X-Amz-Target", answer=reply, times=3))
    await store.transact([Put("topic/b", b"1", None), Check("topic/a", v(0))])
    proxy.faults.append(Fault("X-Amz-Target", answer=reply, times=3))
    assert (await store.get_many(["topic/a", "topic/b"])).keys() == {"topic/a", "topic/b"}
    proxy.faults.append(Fault("X-Amz-Target", answer=reply, times=3))
    assert len(await store.list("topic/")) == 2


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError"])
async def test_a_transaction_that_collides_is_retried(
    store: DynamoMetadata, proxy: LossyProxy, code: str
) -> None:
    proxy.faults.append(Fault(TRANSACT, answer=cancelled("None", code), times=3))

    await store.transact([Put("topic/a", b"1", None), Put("topic/b", b"1", None)])

    assert len(await store.list("topic/")) == 2


async def test_endless_throttling_raises_store_unavailable(
    store: DynamoMetadata, proxy: LossyProxy
) -> None:
    proxy.faults.append(Fault(PUT, answer=THROTTLES[0], times=-1))

    with pytest.raises(StoreUnavailable, match="ProvisionedThroughputExceeded"):
        await store.transact([Put("topic/a", b"1", None)])

    assert proxy.count(PUT) == TABLE_ATTEMPTS_MAX


async def test_without_answers_a_write_is_unknown_and_a_read_is_unavailable(
    store: DynamoMetadata, proxy: LossyProxy
) -> None:
    proxy.faults.append(Fault("X-Amz-Target", lose_reply=True, times=-1))

    with pytest.raises(OutcomeUnknown):
        await store.transact([Put("topic/a", b"1", None)])
    with pytest.raises(OutcomeUnknown):
        await store.transact([Put("topic/b", b"1", None), Put("topic/c", b"1", None)])
    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        await store.get("topic/a")
    with pytest.raises(StoreUnavailable):
        await store.transact([Check("topic/a", None)])


async def test_a_refusal_after_an_unanswered_attempt_has_an_unknown_outcome(
    store: DynamoMetadata, proxy: LossyProxy
) -> None:
    denied = failed(400, "AccessDeniedException")
    proxy.faults += [Fault(PUT, lose_reply=True), Fault(PUT, answer=denied)]

    with pytest.raises(OutcomeUnknown):
        await store.transact([Put("topic/a", b"1", None)])


async def test_unprocessed_keys_are_requested_again(
    store: DynamoMetadata, proxy: LossyProxy, v: Version, table: str
) -> None:
    await store.transact([Put("topic/a", b"1", None)])
    keys = {"Keys": [{"pk": {"S": "topic"}, "sk": {"S": "a"}}], "ConsistentRead": True}
    partial = {"Responses": {}, "UnprocessedKeys": {table: keys}}
    reply = answer(200, json.dumps(partial), "application/x-amz-json-1.0")
    proxy.faults.append(Fault(".BatchGetItem", answer=reply, times=2))

    assert await store.get_many(["topic/a"]) == {"topic/a": Versioned(b"1", v(0))}


async def test_reads_are_consistent(store: DynamoMetadata, proxy: LossyProxy) -> None:
    await store.get("topic/a")
    await store.get_many(["topic/a"])
    await store.list("topic/")

    assert len(proxy.seen) == 3
    assert all(b'"ConsistentRead": true' in request.body for request in proxy.seen)


async def test_creating_an_existing_table_succeeds(store: DynamoMetadata) -> None:
    assert await store.create_table() is False


async def test_the_error_for_a_missing_table_names_the_command_that_creates_it(
    ministack: str, aws_environment: None
) -> None:
    store = DynamoMetadata("nowhere", str, endpoint=ministack)

    with pytest.raises(StoreUnavailable, match="riacho doctor --create"):
        await store.get("topic/a")
    with pytest.raises(StoreUnavailable, match="riacho doctor --create"):
        await store.transact([Put("topic/a", b"", None)])
    await store.close()


async def test_denied_access_names_the_permissions(
    store: DynamoMetadata, proxy: LossyProxy
) -> None:
    proxy.faults.append(Fault(PUT, answer=failed(400, "AccessDeniedException")))

    with pytest.raises(StoreUnavailable, match="dynamodb:GetItem"):
        await store.transact([Put("topic/a", b"", None)])


async def test_the_error_without_credentials_says_where_to_set_them(
    ministack: str, aws_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = DynamoMetadata("table", str, endpoint=ministack)

    with pytest.raises(StoreUnavailable, match="AWS_PROFILE"):
        await store.get("topic/a")
    await store.close()


async def test_a_refused_connection_raises_store_unavailable(aws_environment: None) -> None:
    [port] = servers.free_ports(1)
    store = DynamoMetadata("t", str, endpoint=f"http://127.0.0.1:{port}", sleep=no_sleep)

    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        await store.transact([Put("topic/a", b"", None)])
    await store.close()


OURS, OTHER = Versioned(b"", "ours"), Versioned(b"", "other")


@pytest.mark.parametrize(
    ("ops", "found", "ambiguous", "expected"),
    [
        ([Put("t/a", b"", None)], {"t/a": OTHER}, False, MetadataConflict),
        ([Put("t/a", b"", None)], {"t/a": OTHER}, True, OutcomeUnknown),
        ([Put("t/a", b"", None)], {"t/a": OURS}, True, None),
        ([Put("t/a", b"", "e")], {"t/a": None}, True, OutcomeUnknown),
        ([Delete("t/a", "e")], {"t/a": None}, False, MetadataConflict),
        ([Delete("t/a", "e")], {"t/a": None}, True, None),
        ([Delete("t/a", "e")], {"t/a": OTHER}, True, OutcomeUnknown),
        # One recognised item proves that the whole transaction was applied.
        ([Put("t/a", b"", "e"), Put("t/b", b"", "e")], {"t/a": OTHER, "t/b": OURS}, True, None),
        ([Put("t/a", b"", "e"), Delete("t/b", "e")], {"t/a": OTHER}, True, OutcomeUnknown),
        ([Delete("t/a", "e"), Delete("t/b", "e")], {"t/a": None, "t/b": None}, True, None),
        ([Delete("t/a", "e"), Delete("t/b", "e")], {"t/a": None}, True, OutcomeUnknown),
        # Another process may have removed the item, while our own delete was fenced.
        ([Delete("t/a", "e"), Check("t/b", "e")], {"t/a": None, "t/b": None}, True, OutcomeUnknown),
        ([Check("t/a", "e"), Check("t/b", "e")], {"t/a": OTHER}, False, MetadataConflict),
    ],
)  # fmt: skip
def test_a_refused_transaction_is_applied_a_conflict_or_unknown(
    ops: list[Op],
    found: dict[str, Versioned | None],
    ambiguous: bool,
    expected: type[Exception] | None,
) -> None:
    meant = refusal(ops, "ours", found, ambiguous=ambiguous)

    assert (None if meant is None else type(meant)) is expected


def test_a_long_version_gives_a_token_of_valid_length() -> None:
    ops = [Put("t/a", b"", None), Put("t/b", b"", None)]

    tokens = {
        write_request("table", ops, version)[1]["ClientRequestToken"]
        for version in ("short", "x" * 100, "y" * 100)
    }

    assert len(tokens) == 3
    assert all(0 < len(token) <= 36 for token in tokens)
