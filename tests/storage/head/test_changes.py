"""Changes of a head other than commits: made once, despite lost races and lost replies."""

import msgspec
import pytest

from storage import keys
from storage.cas import found_instead
from storage.errors import Contended, MetadataConflict, OutcomeUnknown
from storage.head import head as heads
from storage.head.changes import HEAD_ATTEMPTS_MAX, change_head
from storage.head.head import Head
from storage.head.roots import Roll, SavedRoot
from storage.stores.metadata import MetadataStore, Versioned
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.rivals import Rival
from tests.storage.helpers.worlds import TOPIC_ID, create_lane, new_metadata

pytestmark = pytest.mark.anyio

KEY = keys.head(TOPIC_ID, 0)
NEW_ROOT = b"new root"


def with_root(head: Head) -> Head:
    return head if head.root == NEW_ROOT else msgspec.structs.replace(head, root=NEW_ROOT)


async def head_in(metadata: MetadataStore) -> Head:
    item = await metadata.get(KEY)
    assert item is not None
    return heads.decode(item.value)


async def test_a_change_of_a_missing_head_returns_none() -> None:
    assert await change_head(new_metadata(), KEY, with_root) is None


async def test_a_change_keeps_what_others_committed_in_between() -> None:
    metadata = new_metadata()
    await create_lane(metadata)
    rival = Rival(metadata, races=HEAD_ATTEMPTS_MAX - 1)

    changed = await change_head(metadata, KEY, with_root, rival.transact)

    assert rival.calls["transact"] == HEAD_ATTEMPTS_MAX
    assert changed is not None
    assert changed == await head_in(metadata)
    assert (changed.root, changed.next_offsets) == (NEW_ROOT, (HEAD_ATTEMPTS_MAX - 1,))


async def test_a_change_that_loses_every_race_gives_up_and_changes_nothing() -> None:
    metadata = new_metadata()
    await create_lane(metadata)
    rival = Rival(metadata, races=HEAD_ATTEMPTS_MAX)

    with pytest.raises(Contended):
        await change_head(metadata, KEY, with_root, rival.transact)

    assert rival.calls["transact"] == HEAD_ATTEMPTS_MAX
    assert (await head_in(metadata)).root == b""


@pytest.mark.parametrize(("fault", "writes"), [("reply lost", 1), ("request lost", 2)])
async def test_a_change_whose_reply_is_lost_is_made_once(fault: Fault, writes: int) -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata.inner)
    metadata.faults = [fault]

    changed = await change_head(metadata, KEY, with_root)

    assert changed is not None
    assert changed == await head_in(metadata)
    assert changed.root == NEW_ROOT
    assert metadata.calls["transact"] == writes


async def test_a_change_that_is_never_answered_has_an_unknown_outcome() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata.inner)
    metadata.faults = ["request lost"] * HEAD_ATTEMPTS_MAX

    with pytest.raises(OutcomeUnknown):
        await change_head(metadata, KEY, with_root)


async def test_a_change_that_alters_nothing_writes_nothing() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata.inner)

    same = await change_head(metadata, KEY, lambda head: head)

    assert same == await head_in(metadata)
    assert metadata.calls["transact"] == 0


async def test_an_item_that_comes_with_a_conflict_is_not_read_again() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata.inner)
    told = Versioned(b"told", "v9")

    assert await found_instead(metadata, KEY, MetadataConflict({KEY: told})) == told
    assert await found_instead(metadata, KEY, MetadataConflict({KEY: None})) is None
    assert metadata.calls["get"] == 0
    read = await found_instead(metadata, KEY, MetadataConflict({}))
    assert read == await metadata.inner.get(KEY)


def rolled_head() -> Head:
    """Return a head that had four runs, of which a roll has taken one; both its zones in sync."""
    head = heads.create(TOPIC_ID, 0, 1, ["a", "b"])
    head = heads.append(head, [run_of(bytes([n]), {0: 1}) for n in range(4)])
    return heads.drop_runs(head, 1, b"old root")


@pytest.mark.parametrize(
    ("old_root", "run_count", "zones", "left"),
    [
        (b"old root", 2, 0b11, 2),
        (b"old root", 4, 0b11, 0),
        (b"old root", 4, 0b111, 0),
        (b"old root", 5, 0b11, None),  # This head does not have these runs.
        (b"old root", 1, 0b11, None),  # These runs are in the old root already.
        (b"another", 2, 0b11, None),
        (b"old root", 2, 0b01, None),  # A zone in sync lacks the new root.
    ],
)
def test_a_roll_applies_only_to_the_head_it_was_made_from(
    old_root: bytes, run_count: int, zones: int, left: int | None
) -> None:
    head = rolled_head()

    applied = Roll(old_root, NEW_ROOT, run_count, zones, head.leader_epoch).applied_to(head)

    if left is None:
        assert applied is None
    else:
        assert applied is not None
        assert (applied.root, applied.runs) == (NEW_ROOT, head.runs[3 - left :])
        assert applied.next_offsets == head.next_offsets


@pytest.mark.parametrize(
    ("old_root", "zones", "fits"),
    [
        (b"old root", 0b11, True),
        (b"old root", 0b111, True),
        (b"another", 0b11, False),
        (b"old root", 0b10, False),
    ],
)
def test_a_root_fits_only_the_head_it_was_made_from(
    old_root: bytes, zones: int, fits: bool
) -> None:
    head = rolled_head()

    assert SavedRoot(old_root, NEW_ROOT, zones, head.leader_epoch).fits(head) is fits
    # A zone that has left since may have been wiped: it may lack the root, although in sync again.
    assert not SavedRoot(old_root, NEW_ROOT, zones, head.leader_epoch - 1).fits(head)
