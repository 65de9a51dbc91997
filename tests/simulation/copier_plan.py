"""The choices of a seed about copiers and writers, made before the run."""

import random
from dataclasses import dataclass

from tests.simulation.http import NetPlan

TIMEOUT_MS_MAX = 900_000


@dataclass
class CopierPlan:
    copiers: int
    source_partitions: int
    partitions: int
    lane_partitions: int
    records: int
    in_group: bool
    in_one_call: float
    aborts: float
    pauses: float
    timeout_ms: int
    life_s: float
    writers: int
    calls: int
    net: NetPlan

    @classmethod
    def of(cls, chance: random.Random) -> "CopierPlan":
        return cls(
            copiers=chance.choice([0, 1, 2, 3, 3]),
            source_partitions=chance.randint(1, 3),
            partitions=chance.randint(1, 4),
            lane_partitions=chance.choice([1, 2, 64]),
            records=chance.randint(25, 80),
            in_group=chance.random() < 0.5,
            in_one_call=chance.choice([0.0, 0.3, 1.0]),
            aborts=chance.choice([0.0, 0.1]),
            pauses=chance.choice([0.0, 0.1, 0.3]),
            timeout_ms=chance.choice([3_000, 60_000, TIMEOUT_MS_MAX, TIMEOUT_MS_MAX]),
            life_s=chance.choice([3.0, 15.0, 60.0]),
            writers=chance.choice([0, 0, 2]),
            calls=chance.randint(6, 24),
            net=NetPlan.of(chance),
        )
