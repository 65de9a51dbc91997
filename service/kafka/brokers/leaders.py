"""Who leads a partition: rendezvous hash over the live brokers. Pure.

Any gateway serves any partition, so a leader is advice. It is chosen by lane, because the writers
of a head should meet in one process: they share flushes and lose no races, its readers are woken
without a poll, and its cache holds what was just written.

If a broker dies, only its lanes move; if one comes, it takes its part from all others. Gateways
whose lists of live brokers differ for a moment name different leaders, which is harmless.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

ZONE_CHARS_MAX: Final = 249

_ZONE: Final = re.compile(r"(?:^|,)\s*(?:zone|warpstream_az)=([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A gateway that accepts Kafka's protocol, at the address that clients are given."""

    node_id: int
    host: str
    port: int
    zone: str = ""
    """Where it runs; empty: unknown."""


def zone_of(client_id: str) -> str:
    """Return the zone that a client has put into its id (`etl,zone=a`); empty: none.

    WarpStream's `warpstream_az=a` means the same.
    """
    found = _ZONE.search(client_id)
    return "" if found is None else found[1][:ZONE_CHARS_MAX]


def near(brokers: Sequence[Broker], zone: str) -> Sequence[Broker]:
    """Return the brokers in the zone; all of them if the zone is unknown or has none."""
    return ([broker for broker in brokers if broker.zone == zone] if zone else []) or brokers


def chosen(key: bytes, brokers: Sequence[Broker]) -> Broker:
    """Return the broker for `key`, one of at least one."""
    if len(brokers) == 1:
        return brokers[0]
    return max(brokers, key=lambda broker: _weight(key, broker.node_id))


def lane_key(topic_id: bytes, lane: int) -> bytes:
    """Return what a lane is known by when its leader is chosen."""
    return topic_id + lane.to_bytes(4)


def _weight(key: bytes, node_id: int) -> bytes:
    return blake2b(key, digest_size=8, salt=node_id.to_bytes(8)).digest()
