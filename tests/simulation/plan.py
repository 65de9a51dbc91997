"""The choices of a seed, made before the run."""

import random
from dataclasses import dataclass

from tests.simulation.copier_plan import CopierPlan
from tests.simulation.idempotent import IdempotentPlan
from tests.simulation.members import GroupPlan
from tests.simulation.world import Faults


@dataclass
class Plan:
    gateways: int
    zones: str
    """Names of zones, one letter each."""
    replication_factor: int
    min_insync: int
    producers: int
    readers: int
    partitions: int
    lane_partitions: int
    calls: int
    patience_s: float
    """How long producers wait for an answer."""
    faults: Faults
    troubles: int
    quiet_after_s: float
    trims: bool
    """Whether records are deleted from the beginning of the log."""
    group: GroupPlan
    idempotent: IdempotentPlan
    copiers: CopierPlan
    inline_bytes_max: int
    """Above about this size, runs and windows of producers leave the head."""
    table_limits: list[int]
    """Each gateway chooses one of these as its limit for batches in the table."""
    wipes: bool = False
    """Whether zones lose objects. If so, all writers wait for all zones."""

    @classmethod
    def of(cls, chance: random.Random) -> "Plan":
        zones = chance.choice(["a", "abc"])
        factor = chance.randint(2, 3) if zones != "a" else 1
        plan = cls(
            gateways=chance.randint(1, 3),
            zones=zones,
            replication_factor=factor,
            min_insync=chance.choice([1, factor - 1 or 1]),
            producers=chance.randint(2, 5),
            readers=chance.randint(1, 3),
            partitions=chance.randint(1, 4),
            lane_partitions=chance.choice([1, 2, 64]),
            calls=chance.randint(10, 30),
            patience_s=chance.choice([1.0, 60.0, 60.0]),
            faults=Faults(
                before=chance.choice([0.0, 0.02, 0.1]),
                after=chance.choice([0.0, 0.05, 0.15]),
                late=chance.choice([0.0, 0.03, 0.1]),
                bent=chance.choice([0.0, 0.0, 0.02]),
                slow_s=chance.choice([0.001, 0.02, 0.2]),
                stops=chance.choice([0.0, 0.0, 0.002, 0.01]),
            ),
            troubles=chance.randint(0, 8),
            quiet_after_s=chance.uniform(5, 30),
            trims=chance.random() < 0.4,
            group=GroupPlan.of(chance),
            idempotent=IdempotentPlan.of(chance),
            copiers=CopierPlan.of(chance),
            inline_bytes_max=chance.choice([150, 600, 4096]),
            table_limits=chance.choice([[0], [0, 900, 65_536], [65_536]]),
        )
        plan._choose_cast(chance)
        plan._choose_losses(chance)
        return plan

    def _choose_losses(self, chance: random.Random) -> None:
        """Let zones lose objects only if another zone is guaranteed to hold them."""
        if self.replication_factor == 3 and chance.random() < 0.5:
            self.wipes, self.min_insync = True, 2

    def _choose_cast(self, chance: random.Random) -> None:
        """Use few actors in most runs: many short runs find more than few long ones."""
        match chance.randrange(6):
            case 0:
                self.copiers.copiers = self.copiers.writers = self.idempotent.producers = 0
            case 1 | 2:
                self.group.members = self.copiers.copiers = self.copiers.writers = 0
            case 3 | 4:
                self.group.members = self.idempotent.producers = 0
                self.quiet_after_s += 30
        if self.group.members:
            # Records that the group has not read yet would be deleted.
            self.trims = False
