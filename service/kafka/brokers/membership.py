"""The item of the cluster: its id, and the node ids of brokers by address.

    counter/kafka    cluster id, next node id, the addresses with their node ids, newest last

A broker that comes back at the address at which clients knew it gets the node id that they knew.
So a laptop always has broker 1, and a gateway that is restarted is no new broker. An id is never
given to another address. Gateways that advertise one address, behind a load balancer, are one
broker to clients.

If the reply to a write is lost, the next attempt finds the address with its id, or writes again.
"""

import base64
from collections.abc import Callable
from typing import Final

import msgspec

from service.world.clock import World
from storage import keys
from storage.cas import Keep, Replace, change_item
from storage.formats import frames
from storage.stores.metadata import MetadataStore, Versioned

FIRST_NODE_ID: Final = 1

ADDRESSES_MAX: Final = 256
"""Maximum number of addresses whose node ids are remembered; the oldest is forgotten first."""

_MAGIC: Final = b"RKC1"


class ClusterItem(msgspec.Struct, array_like=True, frozen=True):
    cluster_id: str
    next_node_id: int
    addresses: tuple[tuple[str, int, int], ...] = ()
    """Host, port and node id."""

    def node_id_of(self, host: str, port: int) -> int | None:
        return next((n for h, p, n in self.addresses if (h, p) == (host, port)), None)


_DECODER: Final = msgspec.msgpack.Decoder(ClusterItem)


def decode(value: bytes) -> ClusterItem:
    """Return the item of the cluster, or raise `Corrupt`."""
    return frames.unpack(_MAGIC, value, _DECODER, "the item of the Kafka cluster")


def encode(item: ClusterItem) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(item))


def new_cluster_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return 22 characters, as Kafka's are: 16 random bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(random_bytes(16)).decode().rstrip("=")


def joined(item: ClusterItem, host: str, port: int) -> tuple[ClusterItem, int]:
    """Return the item with this address in it, and its node id."""
    node_id = item.node_id_of(host, port)
    others = [each for each in item.addresses if each[:2] != (host, port)]
    following = item.next_node_id
    if node_id is None:
        node_id, following = following, following + 1
    kept = (*others[-(ADDRESSES_MAX - 1) :], (host, port, node_id))
    return ClusterItem(item.cluster_id, following, kept), node_id


async def join(
    metadata: MetadataStore, world: World, host: str, port: int
) -> tuple[ClusterItem, int]:
    """Return the item of the cluster, created if need be, and the node id of this address."""

    async def decide(
        stored: Versioned | None,
    ) -> Keep[tuple[ClusterItem, int]] | Replace[tuple[ClusterItem, int]]:
        if stored is None:
            old = ClusterItem(new_cluster_id(world.random_bytes), FIRST_NODE_ID)
        else:
            old = decode(stored.value)
            node_id = old.node_id_of(host, port)
            if node_id is not None:
                return Keep((old, node_id))
        new, node_id = joined(old, host, port)
        return Replace(encode(new), (new, node_id))

    return await change_item(metadata, keys.kafka_cluster(), decide, world.patience)
