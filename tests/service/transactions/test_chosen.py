"""Commits that take only some of what is staged: who was retried is not there twice."""

import pytest

from service.transactions.state import Outcome
from storage.errors import InvalidRequest
from tests.service.transactions.cluster import Cluster, Process, offsets_of, with_topic

pytestmark = pytest.mark.anyio


async def named(process: Process, *values: str, partition: int = 0) -> str:
    """Stage with whoever began last, and return the name."""
    view = (await process.transactions.all())[0]
    await process.stage(view, *values, partition=partition)
    assert process.staged is not None
    return process.staged


async def test_only_what_is_named_is_committed_and_in_that_order() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    first = await named(process, "a", "b")
    await named(other, "lost", partition=2)
    second = await named(other, "c")
    third = await named(process, "d", partition=1)

    ended = await process.transactions.commit(view.ref, offsets_of("g", 4), [second, third, first])

    assert ended.results == {"t": ((0, 0, 3), (1, 0, 1))}
    assert [await process.read(p) for p in range(3)] == [["c", "a", "b"], ["d"], []]
    assert await process.offset("g") == 4
    again = await other.transactions.commit(view.ref, None, [second, third, first])
    assert again.results == ended.results


async def test_a_name_that_is_not_there_leaves_the_transaction_open() -> None:
    process = await with_topic(Cluster())
    view = await process.begin()
    name = await named(process, "a")
    for names in ([name, "00" * 16], [name, name], ["é"]):
        with pytest.raises(InvalidRequest, match="staged"):
            await process.transactions.commit(view.ref, None, names)

    ended = await process.transactions.commit(view.ref, None, [])

    assert ended.outcome is Outcome.COMMITTED
    assert await process.read() == []


async def test_numbered_requests_have_no_name_and_are_committed_by_default() -> None:
    process = await with_topic(Cluster())
    view = await process.begin()
    await process.stage(view, "a", sequence=0)
    assert process.staged is None

    await process.transactions.commit(view.ref, None)

    assert await process.read() == ["a"]


async def test_what_comes_during_a_commit_is_not_part_of_it() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    name = await named(process, "a")
    await process.items.hopeful(view.ref)  # From now on it believes that this is all.
    await named(other, "late")

    await process.transactions.commit(view.ref, None, [name])

    assert await process.read() == ["a"]
