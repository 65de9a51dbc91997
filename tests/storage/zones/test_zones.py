"""Zones: puts write a copy to each, reads are answered by any."""

import pytest

from storage.errors import Corrupt, InvalidConfig, ObjectMissing, StoreUnavailable
from storage.zones.health import AVOIDED_S, FAILURES_MAX
from storage.zones.zones import Zones
from tests.storage.helpers.failing_zones import FailingZones
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


def two_zones() -> tuple[TestObjects, TestObjects, Zones]:
    a, b = TestObjects(), TestObjects()
    return a, b, Zones({"a": a, "b": b})


async def test_a_put_writes_a_copy_to_every_named_zone() -> None:
    a, b, zones = two_zones()

    assert await zones.put_widely("x", [b"12", b"3"], ["a", "b"]) == ["a", "b"]

    assert await a.get("x") == await b.get("x") == b"123"


@pytest.mark.parametrize("hopeful", [[], ["b"]])
async def test_a_put_fails_with_the_error_of_a_required_zone(hopeful: list[str]) -> None:
    a, _, zones = two_zones()
    a.failing_puts = 1

    with pytest.raises(StoreUnavailable, match="rocks"):
        await zones.put_widely("x", [b"123"], ["a"], hopeful)


async def test_a_put_succeeds_if_one_required_zone_holds_it() -> None:
    a, _, zones = two_zones()
    a.failing_puts = 1

    assert await zones.put_widely("x", [b"123"], ["a", "b"]) == ["b"]


async def test_a_read_tries_the_next_zone_if_one_lost_the_object_or_fails() -> None:
    a, b, zones = two_zones()
    await b.put("x", [b"123"])

    assert await zones.get_as("x", ["a", "b"], bytes) == b"123"
    b.failing_reads, a.failing_reads = 0, 1
    assert await zones.get_ranges("x", [(1, 2)], ["a", "b"]) == [b"2"]


async def test_an_object_is_missing_only_if_every_zone_says_so() -> None:
    a, b, zones = two_zones()

    with pytest.raises(ObjectMissing):
        await zones.get_as("x", ["a", "b"], bytes)
    b.failing_reads = 1
    with pytest.raises(StoreUnavailable):
        await zones.get_as("x", ["a", "b"], bytes)
    a.failing_reads = 1
    with pytest.raises(StoreUnavailable):
        await zones.get_ranges("x", [(0, 1)], ["a", "b"])


async def test_a_zone_that_is_not_configured_counts_as_unavailable() -> None:
    a, _, zones = two_zones()
    await a.put("x", [b"123"])

    assert await zones.get_as("x", ["c", "a"], bytes) == b"123"
    with pytest.raises(StoreUnavailable, match="'c' is not configured"):
        await zones.get_as("x", ["c"], bytes)
    with pytest.raises(StoreUnavailable, match="no zone"):
        await zones.get_as("x", [], bytes)
    assert zones.names == ("a", "b")


def test_zones_cannot_be_empty() -> None:
    with pytest.raises(InvalidConfig):
        Zones({})


async def test_every_zone_has_its_own_result() -> None:
    zones = FailingZones()
    zones["b"].mode = "denied"
    zones["c"].mode = "hanging"

    puts = zones.start("x", [b"12", b"3"], ["a", "b", "c"])
    assert not await puts.wait(timeout_s=0.01)

    assert puts.done == ["a"]
    assert list(puts.failed) == ["b"]
    assert isinstance(puts.failed["b"], StoreUnavailable)
    assert puts.running == ["c"]
    assert await puts.wait(["a", "b"])
    puts.cancel()
    assert await puts.wait()
    assert set(puts.failed) == {"b", "c"}
    assert await zones["a"].keys() == {"x"}


async def test_a_slow_put_continues_after_its_caller_stopped_waiting() -> None:
    _, b, zones = two_zones()
    b.hold_puts = True
    puts = zones.start("x", [b"123"], ["a", "b"])
    await puts.wait(["a"])

    zones.leave_behind(puts)
    await turns()
    b.held[0].set()
    await puts.wait()

    assert puts.done == ["a", "b"]
    assert await b.get("x") == b"123"


async def test_bytes_of_slow_puts_are_bounded_and_the_oldest_is_cancelled() -> None:
    a, b, _ = two_zones()
    zones = Zones({"a": a, "b": b}, left_behind_bytes_max=20)
    b.hold_puts = True
    flights = []
    for number in range(4):
        flights.append(zones.start(f"x{number}", [bytes(8)], ["b"]))
        zones.leave_behind(flights[-1])
    await turns()

    assert [puts.running for puts in flights] == [[], [], ["b"], ["b"]]
    await zones.close()
    await turns()
    assert not any(puts.running for puts in flights)


async def test_a_put_does_not_wait_for_a_hopeful_zone() -> None:
    zones = FailingZones("ab")
    zones["b"].mode = "hanging"

    assert await zones.put_widely("x", [b"123"], ["a"], ["b"]) == ["a"]


async def test_a_put_into_a_zone_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.zones.zones.STRAGGLER_S_MAX", 0.01)
    zones = FailingZones("ab")
    zones["a"].mode, zones["b"].mode = "hanging", "hanging"

    with pytest.raises(StoreUnavailable, match="no zone took it within"):
        await zones.put_widely("x", [b"123"], ["a", "b"])


def no_sevens(body: bytes) -> bytes:
    if b"7" in body:
        raise Corrupt("there is a seven")
    return body.lower()


async def test_a_damaged_copy_is_read_from_the_next_zone() -> None:
    a, b, zones = two_zones()
    await a.put("x", [b"A7C"])
    await b.put("x", [b"ABC"])

    assert await zones.get_as("x", ["a", "b"], no_sevens) == b"abc"
    assert (zones.health["a"].damaged, zones.health["b"].damaged) == (1, 0)

    def check(pieces: list[bytes]) -> None:
        no_sevens(pieces[0])

    assert await zones.get_ranges("x", [(1, 2)], ["a", "b"], check) == [b"B"]
    with pytest.raises(Corrupt, match="seven"):
        await zones.get_as("x", ["a"], no_sevens)


async def test_bytes_damaged_in_transit_are_read_again() -> None:
    a, _, zones = two_zones()
    await a.put("x", [b"ABC"])
    arrives = iter([b"A7C", b"ABC"])

    def decode(_: bytes) -> bytes:
        return no_sevens(next(arrives))

    assert await zones.get_as("x", ["a"], decode) == b"abc"
    assert zones.health["a"].damaged == 0


async def test_the_most_telling_error_of_all_zones_is_raised() -> None:
    zones = FailingZones()
    await zones["a"].put("x", [b"7"])

    with pytest.raises(Corrupt, match="seven"):
        await zones.get_as("x", ["c", "a", "b"], no_sevens)
    zones["b"].mode = "denied"
    with pytest.raises(StoreUnavailable, match="denied"):
        await zones.get_as("x", ["a", "b", "c"], no_sevens)
    assert (zones.health["c"].missing, zones.health["b"].failures) == (2, 1)


async def test_a_slow_read_is_also_sent_to_another_zone() -> None:
    zones = FailingZones()
    for name in "abc":
        await zones[name].put("x", [b"123"])
    zones["a"].mode = "hanging"
    zones["b"].mode = "denied"

    assert await zones.get_as("x", ["a", "b", "c"], bytes) == b"123"
    assert "too long" in zones.health["a"].last_error


async def test_a_zone_that_failed_often_is_asked_last_for_a_while() -> None:
    zones = FailingZones("ab")
    for name in "ab":
        await zones[name].put("x", [b"123"])
    zones["a"].mode = "denied"
    for _ in range(FAILURES_MAX):
        assert await zones.get_as("x", ["a", "b"], bytes) == b"123"
    assert zones.is_avoided("a")
    zones["a"].reads.clear()

    assert await zones.get_as("x", ["a", "b"], bytes) == b"123"
    assert zones["a"].reads == []

    zones["a"].mode = "ok"
    zones.health["a"].failed_s -= AVOIDED_S
    assert await zones.get_as("x", ["a", "b"], bytes) == b"123"
    assert zones["a"].reads == ["x"]
    assert not zones.is_avoided("a")
    assert zones.is_avoided("not configured")


async def test_reads_that_hang_in_every_zone_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.zones.zones.READ_S_MAX", 0.15)
    zones = FailingZones("ab")
    zones["a"].mode = zones["b"].mode = "hanging"

    with pytest.raises(StoreUnavailable, match="no zone gave x"):
        await zones.get_as("x", ["a", "b"], bytes)


async def test_a_bug_in_our_decoder_does_not_count_as_a_failed_zone() -> None:
    _, _, zones = two_zones()
    await zones.put_widely("x", [b"1"], ["a", "b"])

    def wrong(_: bytes) -> bytes:
        raise TypeError("a bug")

    with pytest.raises(TypeError):
        await zones.get_as("x", ["a", "b"], wrong)
