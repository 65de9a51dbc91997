"""What of a seed runs connectors. Chosen apart from the rest of the seed."""

import random
from dataclasses import dataclass
from typing import Final

from tests.checker.connect_history import ConnectorKind
from tests.simulation.http import NetPlan

SINKS: Final[tuple[ConnectorKind, ...]] = ("plain", "filling", "holding")


@dataclass
class ConnectPlan:
    sources: int
    sinks: tuple[ConnectorKind, ...]
    partitions: int
    """Of each source."""
    numbers: int
    """Of each partition of a source, at most."""
    pace_s: float
    """How long until the next number is there; 0: all are there from the beginning."""
    at_once: int
    """Records of a poll, at most."""
    bad: float
    """Fraction of records that a converter refuses, of each kind."""
    faults: float
    """Probability that a call of a task to its source or target fails."""
    slow_s: float
    topic_partitions: int
    tasks_max: int
    replans: bool
    """Whether partitions of sources appear later, and tasks are planned again."""
    follows: bool
    """Whether a runner may bear the name of one that was killed."""
    batch: int
    """Records of a put, at most."""
    clients: int
    calls: int
    net: NetPlan

    @classmethod
    def of(cls, chance: random.Random) -> "ConnectPlan":
        is_on = chance.random() < 0.3
        return cls(
            sources=chance.choice([1, 1, 2]) if is_on else 0,
            sinks=tuple(chance.choices(SINKS, k=chance.choice([0, 1, 1, 2]))),
            partitions=chance.randint(1, 4),
            numbers=chance.randint(5, 40),
            pace_s=chance.choice([0.0, 0.3, 1.0]),
            at_once=chance.choice([1, 3, 100]),
            bad=chance.choice([0.0, 0.1, 0.3]),
            faults=chance.choice([0.0, 0.05, 0.2]),
            slow_s=chance.choice([0.001, 0.05, 1.0]),
            topic_partitions=chance.randint(1, 3),
            tasks_max=chance.randint(1, 3),
            replans=chance.random() < 0.3,
            follows=chance.random() < 0.5,
            batch=chance.choice([1, 5, 500]),
            clients=chance.choice([0, 1, 2]),
            calls=chance.randint(2, 8),
            net=NetPlan.of(chance),
        )

    @property
    def is_on(self) -> bool:
        return self.sources > 0
