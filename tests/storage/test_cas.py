"""Compare-and-set with doubt: applied once, whatever races and replies are lost."""

from collections.abc import Awaitable, Callable

import pytest

from storage.cas import (
    Again,
    Decide,
    Keep,
    Landed,
    Patience,
    Replace,
    Undecided,
    change_item,
    retry,
)
from storage.errors import (
    Contended,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    StoreUnavailable,
)
from storage.stores.metadata import Put, Versioned
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.worlds import new_metadata

pytestmark = pytest.mark.anyio

KEY = "thing/a"
ATTEMPTS = 4

ANOTHER = MetadataConflict({})
SILENCE = OutcomeUnknown("no answer")


class Waits:
    """A back-off that takes no time, and records what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def wait(self, lost: int) -> None:
        self.asked.append(lost)


def following(*steps: object) -> Callable[[bool], Awaitable[object]]:
    """Return attempts that end by each of `steps` in turn: by raising it, if it is an error."""
    left = list(steps)

    async def attempt(is_in_doubt: bool) -> object:
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return (step, is_in_doubt) if isinstance(step, str) else step

    return attempt


@pytest.mark.parametrize(
    ("steps", "is_in_doubt"),
    [
        ([], False),
        ([ANOTHER], False),
        ([Again()], False),
        ([SILENCE], True),
        ([SILENCE, ANOTHER, Again()], True),
    ],
)
async def test_an_attempt_is_repeated_until_it_is_answered(
    steps: list[object], is_in_doubt: bool
) -> None:
    waits = Waits()

    found = await retry("it", following(*steps, "done"), Patience(ATTEMPTS, waits.wait))

    assert found == ("done", is_in_doubt)
    assert waits.asked == list(range(1, len(steps) + 1))


@pytest.mark.parametrize("lost", [ANOTHER, Again()])
async def test_attempts_are_limited(lost: object) -> None:
    waits = Waits()

    with pytest.raises(Contended, match="it is changed by others"):
        await retry("it", following(*[lost] * ATTEMPTS), Patience(ATTEMPTS, waits.wait))

    assert waits.asked == list(range(1, ATTEMPTS)), "nothing follows the last attempt"


async def test_no_attempt_begins_after_the_time_limit() -> None:
    times = iter([5.0, 8.0, 8.1])
    patience = Patience(ATTEMPTS, s_max=3.0, monotonic_s=lambda: next(times))

    with pytest.raises(Contended):
        await retry("it", following(ANOTHER, ANOTHER), patience)

    assert next(times, None) is None, "there were two attempts"


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (ANOTHER, "it may have changed; look before"),
        (StoreUnavailable("throttled"), "it may have changed: throttled"),
        (Undecided(InvalidRequest("no")), "it may have changed: no"),
    ],
)
async def test_after_a_lost_reply_no_error_says_that_nothing_happened(
    last: object, message: str
) -> None:
    with pytest.raises(OutcomeUnknown, match=message):
        await retry("it", following(SILENCE, last), Patience(2))


@pytest.mark.parametrize("error", [StoreUnavailable("throttled"), InvalidRequest("no")])
async def test_other_errors_are_not_retried(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        await retry("it", following(error), Patience(ATTEMPTS))

    assert raised.value is error


class Table(FaultyMetadata):
    """A table with one item, whose writes meet `faults`."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(new_metadata())
        self.faults = list(faults)
        self.seen: list[bytes | None] = []
        self.waits = Waits()

    async def value(self) -> bytes | None:
        item = await self.inner.get(KEY)
        return None if item is None else item.value

    async def write(self, value: bytes) -> None:
        item = await self.inner.get(KEY)
        version = None if item is None else item.version
        await self.inner.transact([Put(KEY, value, version)])

    def adding(self, more: bytes) -> Decide[bytes]:
        """Return the decision to append `more` to the item."""

        async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes]:
            before = b"" if item is None else item.value
            self.seen.append(before)
            return Replace(before + more, before + more)

        return decide

    async def change(self, decide: Decide[bytes], landed: Landed[bytes] | None = None) -> bytes:
        patience = Patience(ATTEMPTS, self.waits.wait)
        return await change_item(self, KEY, decide, patience, landed=landed)


async def is_last(item: Versioned | None, sent: bytes) -> bytes | None:
    return sent if item is not None and item.value.startswith(sent) else None


async def test_an_item_is_created_and_changed() -> None:
    table = Table()

    assert await table.change(table.adding(b"a")) == b"a"
    assert await table.change(table.adding(b"b")) == b"ab"
    assert await table.value() == b"ab"


async def test_to_keep_an_item_writes_nothing() -> None:
    table = Table()

    async def decide(item: Versioned | None) -> Keep[bytes]:
        return Keep(b"kept")

    assert await table.change(decide) == b"kept"
    assert table.calls["transact"] == 0


async def test_a_conflict_shows_the_item_to_decide_on_next() -> None:
    table = Table()
    adding = table.adding(b"a")

    async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes] | Again:
        decision = await adding(item)
        if len(table.seen) == 1:
            await table.write(b"theirs")
        return decision

    assert await table.change(decide) == b"theirsa"
    assert table.calls["get"] == 1
    assert table.waits.asked == [1]


async def test_an_item_is_read_again_if_the_decision_has_to_wait() -> None:
    table = Table()
    adding = table.adding(b"a")

    async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes] | Again:
        if item is None:
            await table.write(b"b")
            return Again()
        return await adding(item)

    assert await table.change(decide) == b"ba"
    assert table.calls["get"] == 2


@pytest.mark.parametrize("fault", ["request lost", "reply lost"])
async def test_a_write_without_a_reply_is_applied_once(fault: Fault) -> None:
    table = Table(fault)

    assert await table.change(table.adding(b"a"), is_last) == b"a"
    assert await table.value() == b"a"


async def test_a_lost_reply_is_recognised_after_the_last_attempt_too() -> None:
    table = Table(*["request lost"] * (ATTEMPTS - 1), "reply lost")

    assert await table.change(table.adding(b"a"), is_last) == b"a"


async def test_a_lost_reply_is_recognised_by_the_conflict_that_follows() -> None:
    table = Table("request lost")
    adding = table.adding(b"a")

    async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes] | Again:
        decision = await adding(item)
        if table.lost:
            [late] = table.lost
            table.lost.clear()
            await table.inner.transact(late)  # It was only late.
        return decision

    assert await table.change(decide, is_last) == b"a"
    assert await table.value() == b"a"


async def test_a_change_that_loses_every_race_is_given_up() -> None:
    table = Table()
    adding = table.adding(b"a")

    async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes] | Again:
        decision = await adding(item)
        await table.write(b"theirs")
        return decision

    with pytest.raises(Contended):
        await table.change(decide)

    assert len(table.seen) == ATTEMPTS


async def test_a_conflict_ends_the_doubt_about_earlier_attempts() -> None:
    table = Table("request lost")
    adding = table.adding(b"a")

    async def decide(item: Versioned | None) -> Keep[bytes] | Replace[bytes] | Again:
        decision = await adding(item)
        if len(table.seen) > 1:
            await table.write(b"theirs")
        return decision

    with pytest.raises(Contended):
        await table.change(decide, is_last)


async def test_a_change_whose_outcome_cannot_be_read_is_in_doubt() -> None:
    silent, cut_off = Table(*["request lost"] * ATTEMPTS), Table("request lost")

    async def cut() -> None:
        cut_off.failing_gets = 1

    cut_off.before_unknown = cut
    for table in (silent, cut_off):
        with pytest.raises(OutcomeUnknown, match=f"{KEY} may have changed: "):
            await table.change(table.adding(b"a"), is_last)


async def test_a_store_that_refuses_has_written_nothing() -> None:
    table = Table("refused")

    with pytest.raises(StoreUnavailable):
        await table.change(table.adding(b"a"))
