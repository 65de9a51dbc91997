"""What of a seed uses the schema registry. Chosen apart from the rest of the seed."""

import random
from dataclasses import dataclass

from tests.checker.schema_rules import NUMBERS, TEXTS
from tests.simulation.http import NetPlan


@dataclass
class SchemaPlan:
    clients: int
    calls: int
    subjects: list[str]
    bases: list[str]
    """Subjects that others refer to."""
    types: tuple[str, ...]
    flavours: int
    """Schemas of each type. With few of them all clients register the same ones."""
    deletes: float
    """Fraction of calls that delete, as the next two change rules and look things up."""
    rules: float
    looks: float
    net: NetPlan

    @classmethod
    def of(cls, chance: random.Random) -> "SchemaPlan":
        contexts = chance.choice([[""], [""], ["", ":.x:"]])
        subjects = chance.choice([1, 2, 3])
        return cls(
            clients=chance.choice([0, 0, 2, 3, 6]),
            calls=chance.randint(5, 20),
            subjects=[f"{each}s{number}" for each in contexts for number in range(subjects)],
            bases=[f"{each}base" for each in contexts],
            types=chance.choice([("int",), ("int", "long"), NUMBERS, (*NUMBERS, *TEXTS)]),
            flavours=chance.choice([1, 3, 100]),
            deletes=chance.choice([0.0, 0.15, 0.3]),
            rules=chance.choice([0.0, 0.05, 0.15]),
            looks=chance.choice([0.1, 0.3]),
            net=NetPlan.of(chance),
        )
