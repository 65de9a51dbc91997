"""Commits of transactions: what they read and write, and what they meet on the way."""

import pytest

from service.transactions import state
from service.transactions.state import Outcome
from service.transactions.transactions import TIMEOUT_MS_MAX, Instance
from service.transactions.views import View
from storage import keys
from storage.errors import (
    HeadMissing,
    InvalidTransactionState,
    TransactionTooLarge,
    UnknownTransaction,
)
from storage.head.producers import EPOCH_MAX
from storage.lanes import atomic
from storage.lanes.rolls import TRUSTED_S
from storage.stores.metadata import Delete, Put
from tests.service.transactions.cluster import TXN, Cluster, Process, offsets_of, with_topic

pytestmark = pytest.mark.anyio


async def remove(cluster: Cluster, key: str) -> None:
    item = await cluster.metadata.get(key)
    assert item is not None
    await cluster.metadata.transact([Delete(key, item.version)])


async def at_epoch(cluster: Cluster, process: Process, epoch: int) -> View:
    """Return a transaction that was begun in this epoch."""
    made = await process.transactions.init(TXN)
    known = await process.items.read(TXN)
    txn = state.Transaction(producer_id=made.producer_id, epoch=epoch, changed_ms=0)
    put = Put(keys.transaction(TXN), state.encode(txn), known.version)
    await cluster.metadata.transact([put])
    instance = Instance(producer_id=made.producer_id, epoch=epoch)
    return await process.transactions.begin(TXN, 60_000, instance)


@pytest.mark.parametrize("timeout_ms", [1, TIMEOUT_MS_MAX])
async def test_the_shortest_and_the_longest_timeout_are_taken(timeout_ms: int) -> None:
    process = await with_topic(Cluster())
    assert (await process.begin(timeout_ms=timeout_ms)).timeout_ms == timeout_ms


# What it costs


async def test_a_commit_of_what_is_known_reads_nothing() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    for _ in range(2):
        view = await process.begin()
        await process.stage(view, "a")
        cluster.metadata.calls.clear()
        await process.transactions.commit(view.ref, None)

    assert cluster.metadata.calls == {"transact": 1}


async def test_nothing_is_written_for_a_transaction_that_was_committed_here() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    await process.stage(view, "a")
    ended = await process.transactions.commit(view.ref, None)
    cluster.objects.calls.clear()
    cluster.metadata.calls.clear()

    with pytest.raises(InvalidTransactionState, match="was committed already"):
        await process.stage(view, "b")
    assert await process.transactions.commit(view.ref, None) == ended

    assert not cluster.objects.calls["put"]
    assert not cluster.metadata.calls["transact"]


async def test_after_an_answer_was_lost_it_looks_before_it_writes() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    await process.stage(view, "a")
    cluster.metadata.calls.clear()

    async def fail() -> None:
        cluster.metadata.failing_gets = 1

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = fail
    ended = await process.transactions.commit(view.ref, None)

    assert ended.results == {"t": ((0, 0, 1),)}
    assert cluster.metadata.calls["transact"] == 1


@pytest.mark.parametrize(
    ("epoch", "with_offsets", "op_count"),
    [(0, False, 3), (0, True, 5), (EPOCH_MAX, False, 4), (EPOCH_MAX, True, 6)],
)
async def test_one_item_too_many_is_noticed_before_a_head_is_read(
    epoch: int, with_offsets: bool, op_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    process = await with_topic(cluster, **{"lane.partitions": 1})
    view = await at_epoch(cluster, process, epoch)
    for partition in range(2):
        await process.stage(view, "a", partition=partition)
    offsets = offsets_of("g", 1) if with_offsets else None
    other = cluster.process()
    await other.gateway.topics.get("t")
    cluster.metadata.calls.clear()

    monkeypatch.setattr(atomic, "TRANSACT_OPS_MAX", op_count - 1)
    with pytest.raises(TransactionTooLarge):
        await other.transactions.commit(view.ref, offsets)
    assert cluster.metadata.calls["get"] == 2, "the transaction, and whether it is still that"

    monkeypatch.setattr(atomic, "TRANSACT_OPS_MAX", op_count)
    ended = await other.transactions.commit(view.ref, offsets)
    assert ended.outcome is Outcome.COMMITTED


# What has changed meanwhile


async def test_another_transaction_is_not_committed_in_its_place() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    await other.transactions.abort(view.ref)
    following = await other.begin()

    # This one still believes that the first is open, and both of them are empty.
    with pytest.raises(InvalidTransactionState, match="was aborted already"):
        await process.transactions.commit(view.ref, None)

    assert (await other.transactions.describe(following.ref)).state == "ongoing"


async def test_what_was_forgotten_meanwhile_is_unknown() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    await remove(cluster, keys.transaction(TXN))

    with pytest.raises(UnknownTransaction):
        await process.transactions.commit(view.ref, None)


async def test_what_times_out_between_attempts_is_not_committed() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=1000)
    await process.stage(view, "a")

    async def wait() -> None:
        cluster.now_s += 2

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = wait
    with pytest.raises(InvalidTransactionState, match="timed out and was aborted"):
        await process.transactions.commit(view.ref, None)

    assert await process.read() == []


async def test_a_topic_deleted_after_another_gateway_committed_changes_no_answer() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    await process.stage(view, "a")
    ended = await other.transactions.commit(view.ref, None)
    await other.gateway.topics.delete("t")
    cluster.now_s += 10

    # This one still believes that the transaction is open, and finds no topic.
    assert await process.transactions.commit(view.ref, None) == ended


async def test_a_head_that_is_gone_though_its_topic_is_not_is_reported_as_missing() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    topic = await process.gateway.topics.get("t")
    view = await process.begin()
    await process.stage(view, "a")
    await remove(cluster, keys.head(topic.topic_id, 0))

    with pytest.raises(HeadMissing, match="topic 't' exists"):
        await cluster.process().transactions.commit(view.ref, None)


# Zones that lose something


@pytest.mark.parametrize(
    ("age_s", "is_trusted"),
    [(-0.001, False), (0.0, True), (TRUSTED_S, True), (TRUSTED_S + 0.001, False)],
)
async def test_zones_are_asked_for_what_was_staged_long_ago(age_s: float, is_trusted: bool) -> None:
    cluster = Cluster("ab")
    process = cluster.process()
    await process.gateway.topics.create("t", replication_factor=2)
    view = await process.begin()
    await process.stage(view, "a")
    lost = cluster.zones["b"].names(".seg")
    assert len(lost) == 1
    await cluster.zones["b"].delete(lost)

    cluster.now_s += age_s
    await process.transactions.commit(view.ref, None)

    assert cluster.zones["b"].names(".seg") == ([] if is_trusted else lost)
