"""What of a seed speaks Kafka's protocol. Chosen apart from the rest of the seed."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.simulation.http import NetPlan

KEYS: Final = Path(__file__).parent
"""Where gateways and jobs find the key that wraps the data keys of encrypted topics."""

_SEALED: Final = {"encryption": "topic", "encryption.kek": "file:kek.hex"}

GroupKind = Literal["http", "classic", "consumer", "shared"]
"""Whose members a group has: one kind alone, or members of KIP-848, HTTP and classic ones."""


@dataclass
class KafkaPlan:
    share: float
    """Probability that a call of a client is one of Kafka's; 0: no gateway speaks the protocol."""
    in_flight: int
    """Requests of a producer that a gateway has not answered."""
    codecs: tuple[int, ...]
    padding_bytes_max: int
    """Of values: an empty padding makes batches that share slices, a long one slices alone."""
    slices: str
    is_sealed: bool
    group: GroupKind
    net: NetPlan

    @classmethod
    def of(cls, chance: random.Random) -> "KafkaPlan":
        return cls(
            share=chance.choice([0.0, 0.0, 0.4, 0.7, 1.0]),
            in_flight=chance.choice([1, 3, 5]),
            codecs=chance.choice([(0,), (0, 1, 2, 3, 4), (4,), (3, 0)]),
            padding_bytes_max=chance.choice([0, 0, 40, 3000]),
            slices=chance.choice(["raw", "raw", "arrow"]),
            is_sealed=chance.random() < 0.25,
            group=chance.choice(["classic", "consumer", "shared", "shared"]),
            net=NetPlan.of(chance),
        )

    @property
    def is_on(self) -> bool:
        return self.share > 0

    @property
    def config(self) -> Mapping[str, object]:
        """What topics are created with besides."""
        if not self.is_on:
            return {}
        return {"riacho.kafka.slices": self.slices, **(_SEALED if self.is_sealed else {})}
