"""A table that has lost a head: no sweep removes anything, of any topic, in any zone."""

import pytest

from storage import keys
from storage.errors import HeadMissing
from storage.stores.metadata import Delete, Put
from storage.topics import deleted as gone_topics
from storage.topics.deleted import GoneTopic
from tests.service.jobs.sweep.test_sweep import HOUR_S, keys_in, orphan, produce, swept
from tests.service.transactions.cluster import Cluster, with_topic

pytestmark = pytest.mark.anyio

GONE = b"g" * 16


@pytest.mark.parametrize("spread", [False, True], ids=["here", "spread"])
@pytest.mark.parametrize("dry_run", [False, True], ids=["removing", "dry"])
async def test_nothing_goes_while_a_head_is_missing(spread: bool, dry_run: bool) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await produce(process, "kept")
    await cluster.objects.put(orphan(cluster), [b"x"])
    topic = await process.gateway.topics.read("t")
    head = await cluster.metadata.get(keys.head(topic.topic_id, 0))
    assert head is not None
    # A topic that is gone, and a batch that no head mentions, would go first.
    gone = GoneTopic(GONE, "gone", 1, 0)
    await cluster.metadata.transact(
        [
            Put(keys.gone_topic(GONE), gone_topics.encode(gone), None),
            Put(keys.head(GONE, 0), head.value, None),
            Put(keys.table_batch(bytes(16)), b"batch", None),
            Delete(keys.head(topic.topic_id, 0), head.version),
        ]
    )
    before = await keys_in(cluster)
    cluster.now_s += 3 * HOUR_S

    with pytest.raises(HeadMissing, match="topic 't' exists"):
        await swept(cluster, spread=spread, dry_run=dry_run)

    assert await keys_in(cluster) == before
    assert await cluster.metadata.get(keys.head(GONE, 0)) is not None
    assert await cluster.metadata.get(keys.table_batch(bytes(16))) is not None

    await cluster.metadata.transact([Put(keys.head(topic.topic_id, 0), head.value, None)])
    assert (await swept(cluster, spread=spread)).removed.objects == 1
    assert await process.read() == ["kept"]
