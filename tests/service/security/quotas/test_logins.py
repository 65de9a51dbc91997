"""Limits of failed logins: who is locked out, who is not, and for how long."""

import pytest

from service.security.quotas.logins import KEPT_MAX, SUCCESS_S, WINDOW_S, LoginLimits, network_of
from storage.errors import QuotaExceeded, StoreUnavailable, Unauthenticated
from tests.storage.helpers.worlds import Clock

PEER = "10.0.0.7"


class Door:
    """A door that knows the right secret of every key."""

    def __init__(self, failed_max: int = 10, failed_per_peer_max: int = 100) -> None:
        self.clock = Clock()
        self.looked = 0
        self.throttle_ms = 0
        self.limits = LoginLimits(
            self.clock.monotonic_s,
            failed_max=failed_max,
            failed_per_peer_max=failed_per_peer_max,
        )

    def login(self, key: str, secret: str = "right", peer: str = PEER) -> str:
        """Return ok, bad or locked."""
        try:
            with self.limits.login(peer, key, secret.encode()):
                self.looked += 1
                if secret != "right":
                    raise Unauthenticated("no")
        except Unauthenticated:
            return "bad"
        except QuotaExceeded as error:
            self.throttle_ms = error.throttle_ms
            return "locked"
        return "ok"


def test_ten_failures_lock_this_key_from_this_address_and_nothing_else() -> None:
    door = Door()
    assert [door.login("k", f"wrong{n}") for n in range(11)] == ["bad"] * 10 + ["locked"]

    assert door.login("k") == "locked"
    assert 0 < door.throttle_ms <= WINDOW_S * 1000 + 1
    assert door.looked == 10  # A locked credential is not even looked at.
    assert door.login("other") == "ok"
    assert door.login("k", peer="10.0.0.8") == "ok"


def test_a_lock_ends_a_minute_after_the_first_failure() -> None:
    door = Door()
    for number in range(10):
        door.login("k", f"wrong{number}")
        door.clock.now_s += 1

    door.clock.now_s += WINDOW_S - 10 - 0.001
    assert door.login("k") == "locked"
    door.clock.now_s += 0.001
    assert door.login("k") == "ok"


def test_nine_failures_a_minute_lock_nothing() -> None:
    door = Door()
    for _ in range(5):
        assert {door.login("k", f"wrong{n}") for n in range(9)} == {"bad"}
        door.clock.now_s += WINDOW_S
    assert door.login("k") == "ok"


def test_who_has_succeeded_lately_cannot_be_locked_out_by_a_neighbour() -> None:
    door = Door()
    assert door.login("k") == "ok"
    for number in range(200):
        door.login("k", f"wrong{number}")
        door.login(f"k{number}", "wrong")

    assert door.login("k") == "ok"
    # The address as a whole is locked for those who have not succeeded.
    assert door.login("new") == "locked"
    door.clock.now_s += SUCCESS_S
    assert door.login("k", "wrong") == "bad"


def test_a_key_that_was_revoked_loses_its_privilege() -> None:
    door = Door(failed_max=2)
    proof = b"right"
    with door.limits.login(PEER, "k", proof):
        pass
    for _ in range(2):
        with pytest.raises(Unauthenticated), door.limits.login(PEER, "k", proof):
            raise Unauthenticated("revoked")

    assert door.login("k") == "locked"


def test_many_keys_from_one_address_lock_the_address() -> None:
    door = Door()
    outcomes = [door.login(f"k{n}", "wrong") for n in range(150)]

    assert outcomes == ["bad"] * 100 + ["locked"] * 50
    assert door.login("k", peer="10.0.0.8") == "ok"


def test_a_network_of_ipv6_addresses_counts_as_one() -> None:
    door = Door()
    outcomes = [door.login("k", f"w{n}", peer=f"2001:db8::{n:x}") for n in range(12)]

    assert outcomes == ["bad"] * 10 + ["locked"] * 2
    assert door.login("k", peer="2001:db8:0:1::1") == "ok"
    assert network_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert network_of("fe80::1%eth0") == "fe80::"
    assert network_of("testclient") == "testclient"


def test_a_store_that_fails_is_no_failed_login() -> None:
    door = Door(failed_max=1)
    for _ in range(3):
        with pytest.raises(StoreUnavailable), door.limits.login(PEER, "k", b""):
            raise StoreUnavailable("gone")

    assert door.login("k") == "ok"


def test_memory_is_bounded() -> None:
    door = Door()
    for number in range(KEPT_MAX + 100):
        peer = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        door.login("k", "wrong", peer=peer)
        door.login("k", peer=peer)

    limits = door.limits
    sizes = map(len, (limits._failed._known, limits._failed_by_peer._known, limits._succeeded))
    assert max(sizes) == KEPT_MAX
