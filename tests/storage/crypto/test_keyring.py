"""Data keys: made once, agreed upon, replaced, forgotten; and the keys that wrap them."""

import asyncio
import base64
import random
from pathlib import Path

import pytest

from storage import keys
from storage.crypto import keyring as keyrings
from storage.crypto.keyring import AGE_S_MAX, ROTATE_MS, SEALS_MAX, Keyring
from storage.crypto.wrapping import KeyWrappers
from storage.errors import (
    EncryptionKeyUnavailable,
    MetadataConflict,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats.partitions import PartitionNumber
from storage.stores.metadata import MetadataStore
from storage.topics.shredding import TOGETHER_MAX, shredding
from storage.topics.topics import Topic, Topics
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_ids, new_metadata

pytestmark = pytest.mark.anyio

P = PartitionNumber(0)


class Scene:
    """A table, a directory of keys, and any number of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "one.key").write_bytes(bytes(range(32)))
        self.clock = Clock()
        self.now_ms = 10**12
        self.metadata = FaultyMetadata(new_metadata())
        self.seeds = iter(range(1000))
        self.topics = Topics(
            self.metadata,
            ["a"],
            new_ids(1),
            lambda: self.now_ms,
            self.clock.monotonic_s,
            check_key=self.keyring().check,
        )

    def keyring(self, metadata: MetadataStore | None = None) -> Keyring:
        chance = random.Random(next(self.seeds))
        return Keyring(
            metadata or self.metadata,
            KeyWrappers(self.root, chance.randbytes),
            now_ms=lambda: self.now_ms,
            monotonic_s=self.clock.monotonic_s,
            random_bytes=chance.randbytes,
        )

    async def topic(self, name: str = "t") -> Topic:
        config = {"encryption": "topic", "encryption.kek": "file:one.key"}
        return await self.topics.create(name, config=config)

    async def numbers(self, topic: Topic) -> list[int]:
        prefix = keys.data_keys_of(topic.topic_id)
        found = await self.metadata.list(prefix)
        return [int(key.removeprefix(prefix)) for key, _ in found]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_key_is_made_by_the_first_record_and_shared_by_all(scene: Scene) -> None:
    topic = await scene.topic()
    assert await scene.numbers(topic) == []
    one, other = scene.keyring(), scene.keyring()
    first, *others = await asyncio.gather(
        *(ring.sealer(topic) for ring in (one, other, one, other))
    )

    assert await scene.numbers(topic) == [1]
    assert {each.key.secret for each in others} == {first.key.secret}
    sealed = first.seal(b"a", P)
    assert (await scene.keyring().key(topic.topic_id, 1)).key.open(sealed, P) == b"a"


async def test_only_the_wrapped_key_is_stored(scene: Scene) -> None:
    topic = await scene.topic()
    sealer = await scene.keyring().sealer(topic)
    [(_, item)] = await scene.metadata.list(keys.data_keys_of(topic.topic_id))

    assert sealer.key.secret not in item.value
    assert keyrings.decode(item.value).kek == "file:one.key"


async def test_a_key_is_replaced_after_a_month_and_the_old_one_still_opens(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    old = (await ring.sealer(topic)).seal(b"old", P)
    scene.now_ms += ROTATE_MS - 1
    assert ring.sealing(topic) is not None
    scene.now_ms += 1
    assert ring.sealing(topic) is None
    new = await ring.sealer(topic)

    assert new.key.number == 2
    assert (await ring.sealer(topic)).key.number == 2
    assert (await scene.keyring().sealer(topic)).key.number == 2
    assert (await ring.key(topic.topic_id, 1)).key.open(old, P) == b"old"


async def test_a_key_that_sealed_enough_is_replaced(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    (await ring.sealer(topic)).seals = SEALS_MAX

    assert (await ring.sealer(topic)).key.number == 2
    scene.clock.now_s += AGE_S_MAX + 1
    assert (await ring.sealer(topic)).key.number == 2


async def test_what_was_sealed_is_counted_longer_than_a_key_is_in_memory(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    (await ring.sealer(topic)).seals = 17
    scene.clock.now_s += AGE_S_MAX + 1

    assert (await ring.sealer(topic)).seals == 17


async def test_a_key_is_in_use_for_five_minutes_at_most(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    await ring.sealer(topic)
    (scene.root / "one.key").unlink()
    scene.clock.now_s += AGE_S_MAX
    assert ring.sealing(topic) is not None
    await ring.key(topic.topic_id, 1)

    scene.clock.now_s += 1
    assert ring.sealing(topic) is None
    with pytest.raises(EncryptionKeyUnavailable, match=r"one\.key: No such file"):
        await ring.sealer(topic)
    with pytest.raises(EncryptionKeyUnavailable):
        await ring.key(topic.topic_id, 1)


async def test_another_file_does_not_unwrap(scene: Scene) -> None:
    topic = await scene.topic()
    await scene.keyring().sealer(topic)
    (scene.root / "one.key").write_bytes(bytes(32))

    with pytest.raises(EncryptionKeyUnavailable, match="is not the key that wrapped"):
        await scene.keyring().key(topic.topic_id, 1)


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
async def test_a_file_holds_a_key_in_one_of_three_forms(scene: Scene, form: str) -> None:
    secret = random.Random(5).randbytes(32)
    forms = {
        "raw": secret,
        "hex": secret.hex().encode() + b"\n",
        "base64": base64.b64encode(secret) + b"\n",
    }
    (scene.root / "one.key").write_bytes(secret)
    topic = await scene.topic()
    key = (await scene.keyring().sealer(topic)).key
    (scene.root / "one.key").write_bytes(forms[form])

    assert (await scene.keyring().key(topic.topic_id, 1)).key.secret == key.secret


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
async def test_an_unknown_outcome_makes_no_second_key(scene: Scene, fault: Fault) -> None:
    topic = await scene.topic()
    scene.metadata.faults = [fault]
    sealer = await scene.keyring().sealer(topic)

    assert await scene.numbers(topic) == [1]
    assert (await scene.keyring().key(topic.topic_id, 1)).key.secret == sealer.key.secret


async def test_no_key_is_made_for_a_topic_that_is_gone(scene: Scene) -> None:
    topic = await scene.topic()
    await scene.topics.delete("t")
    again = await scene.topic()
    with pytest.raises(UnknownTopicOrPartition):
        await scene.keyring().sealer(topic)

    assert await scene.numbers(topic) == []
    assert (await scene.keyring().sealer(again)).key.number == 1


async def test_shredding_removes_topic_and_keys_in_one_step(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    for _ in range(3):
        await ring.sealer(topic)
        scene.now_ms += ROTATE_MS
    await ring.sealer(topic)
    assert await scene.numbers(topic) == [1, 2, 3, 4]

    await scene.topics.delete("t", shred=True)

    assert await scene.numbers(topic) == []
    with pytest.raises(EncryptionKeyUnavailable, match="which was destroyed"):
        await scene.keyring().key(topic.topic_id, 1)


async def test_a_key_made_while_a_topic_is_shredded_is_shredded_too(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    await ring.sealer(topic)
    removals = await shredding(scene.metadata, topic.topic_id)
    scene.now_ms += ROTATE_MS
    await ring.sealer(topic)
    with pytest.raises(MetadataConflict):
        await scene.metadata.transact(removals)

    await scene.topics.delete("t", shred=True)
    assert await scene.numbers(topic) == []


async def test_the_oldest_of_very_many_keys_are_removed_before(scene: Scene) -> None:
    topic = await scene.topic()
    ring = scene.keyring()
    for _ in range(TOGETHER_MAX + 5):
        await ring.sealer(topic)
        scene.now_ms += ROTATE_MS
    newest = TOGETHER_MAX + 5
    await shredding(scene.metadata, topic.topic_id)

    # The process died here: the topic is there, and so are its newest keys.
    assert await scene.numbers(topic) == list(range(TOGETHER_MAX + 1, newest + 1))
    assert (await scene.keyring().sealer(topic)).key.number == newest + 1
    await scene.topics.delete("t", shred=True)
    assert await scene.numbers(topic) == []


async def test_a_lost_reply_while_shredding(scene: Scene) -> None:
    topic = await scene.topic()
    await scene.keyring().sealer(topic)
    scene.metadata.faults = ["reply lost"]
    await scene.topics.delete("t", shred=True)

    assert await scene.numbers(topic) == []


async def test_a_table_that_is_away_is_reported_as_that(scene: Scene) -> None:
    topic = await scene.topic()
    scene.metadata.faults = ["refused"]
    with pytest.raises(StoreUnavailable):
        await scene.keyring().sealer(topic)
