"""Limits of failed logins, by credential and by address.

Many callers share an address, behind a NAT or a load balancer, and one of them must not lock out
the others. So failures are counted twice:

- by credential and address, with a low limit: then this credential is refused from there;
- by address, with a high limit: then every credential is refused from there;

in both cases for the rest of the minute that began with the first failure, right or wrong, before
it is looked at. But a credential that has succeeded from there lately goes on in any case: whoever
knows its identifier, which is no secret, cannot lock out its owner.

Memory is bounded, and each gateway counts for itself; a function forgets when it ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import Final, Generic, TypeVar

from storage.errors import QuotaExceeded, Unauthenticated

WINDOW_S: Final = 60.0
KEPT_MAX: Final = 10_000
"""Maximum number of credentials, of addresses, and of successes that are remembered."""

SUCCESS_S: Final = 3600.0
"""How long a success counts."""

IPV6_NETWORK_BITS: Final = 64
"""One caller has at least so many addresses of its own."""

K = TypeVar("K")
V = TypeVar("V")


class LoginLimits:
    """The failed logins of the last minute."""

    def __init__(
        self, monotonic_s: Callable[[], float], *, failed_max: int, failed_per_peer_max: int
    ) -> None:
        self._monotonic_s = monotonic_s
        self._failed = _Failures[tuple[str, str]](failed_max)
        self._failed_by_peer = _Failures[str](failed_per_peer_max)
        self._succeeded: dict[tuple[str, str, bytes], float] = {}
        """By address, credential and proof: when it was."""

    @contextmanager
    def login(self, peer: str, credential_id: str, proof: bytes) -> Iterator[None]:
        """Run the body, which raises `Unauthenticated` if the credential is not good.

        `credential_id` is the identifier of a key or a user; for a token without one, a digest of
        it. `proof` is a digest of the whole credential. Raises `QuotaExceeded` instead of running
        the body if there were too many failures.
        """
        now_s = self._monotonic_s()
        network = network_of(peer)
        pair = (network, credential_id)
        success = (network, credential_id, proof)
        if now_s - self._succeeded.get(success, -SUCCESS_S) >= SUCCESS_S:
            left_s = max(
                self._failed.locked_s(pair, now_s), self._failed_by_peer.locked_s(network, now_s)
            )
            if left_s > 0:
                raise QuotaExceeded(
                    "too many failed logins; check the credential, then try again in"
                    f" {left_s:.0f} s",
                    int(left_s * 1000) + 1,
                )
        try:
            yield
        except Unauthenticated:
            self._succeeded.pop(success, None)
            self._failed.add(pair, now_s)
            self._failed_by_peer.add(network, now_s)
            raise
        self._succeeded.pop(success, None)
        self._succeeded[success] = now_s
        _keep_newest(self._succeeded)


class _Failures(Generic[K]):
    """Failures in the minute since the first one, by key."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._known: dict[K, tuple[float, int]] = {}
        """When the minute began, and how many failures it has."""

    def locked_s(self, key: K, now_s: float) -> float:
        """Return how long `key` is refused from now on."""
        began_s, count = self._known.get(key, (0.0, 0))
        return began_s + WINDOW_S - now_s if count >= self._count_max else 0.0

    def add(self, key: K, now_s: float) -> None:
        began_s, count = self._known.get(key, (now_s, 0))
        if now_s - began_s >= WINDOW_S:
            del self._known[key]
            began_s, count = now_s, 0
        self._known[key] = began_s, count + 1
        _keep_newest(self._known)


def _keep_newest(known: dict[K, V]) -> None:
    if len(known) > KEPT_MAX:
        del known[next(iter(known))]


def network_of(peer: str) -> str:
    """Return what is counted for an address: itself, or the network of an IPv6 address."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        kept = int(address) >> (128 - IPV6_NETWORK_BITS) << (128 - IPV6_NETWORK_BITS)
        return str(IPv6Address(kept))
    return str(address)
