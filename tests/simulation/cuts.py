"""Reduced runs: the same seed without some kinds of faults, actors or single events.

A seed decides everything; a `Cut` removes some of it. Seed and cut together give the same run in
any process, so a shrunk failure can be replayed exactly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.connect.plan import ConnectPlan
from tests.simulation.http import NetPlan
from tests.simulation.janitors import JanitorPlan
from tests.simulation.kafka.plan import KafkaPlan
from tests.simulation.plan import Plan
from tests.simulation.schemas.plan import SchemaPlan


@dataclass(frozen=True)
class Cut:
    """The parts that are removed from a run."""

    without: tuple[str, ...] = ()
    """Kinds of events (`trouble.py`), and names of `PARTS`."""
    skipped: tuple[int, ...] = ()
    """Numbers of single events, starting at 1."""
    calls_max: int | None = None
    """Maximum number of calls, batches and records of each actor."""

    def arguments(self) -> str:
        """Return the cut as command-line arguments, each preceded by a space."""
        given = f" --without {','.join(self.without)}" if self.without else ""
        given += f" --skip {','.join(map(str, self.skipped))}" if self.skipped else ""
        return given + (f" --calls {self.calls_max}" if self.calls_max is not None else "")


WHOLE: Final = Cut()


def _without_net(plan: Plan) -> None:
    plan.idempotent.net, plan.copiers.net = NetPlan(), NetPlan()


def _set(name: str, value: object) -> Callable[[Plan], None]:
    owner, _, last = name.rpartition(".")

    def change(plan: Plan) -> None:
        setattr(getattr(plan, owner) if owner else plan, last, value)

    return change


PARTS: Final[Mapping[str, Callable[[Plan], None]]] = {
    "copiers": _set("copiers.copiers", 0),
    "writers": _set("copiers.writers", 0),
    "group": _set("group.members", 0),
    "idempotent": _set("idempotent.producers", 0),
    "readers": _set("readers", 0),
    "trims": _set("trims", False),
    "producers": _set("producers", 1),
    "gateways": _set("gateways", 1),
    "net": _without_net,
    "lost-calls": _set("faults.before", 0.0),
    "lost-answers": _set("faults.after", 0.0),
    "late-calls": _set("faults.late", 0.0),
    "damage": _set("faults.bent", 0.0),
    "stops-at-calls": _set("faults.stops", 0.0),
    "slowness": _set("faults.slow_s", 0.001),
}
"""Parts that can be removed besides kinds of events; one producer and one gateway remain."""

JANITOR_PARTS: Final = ("janitors", "sweeps")

KAFKA_PARTS: Final = ("kafka", "sealing")

SCHEMA_PARTS: Final = ("schemas", "schema-deletes", "schema-rules")

CONNECT_PARTS: Final = ("connect", "connect-calls", "connect-faults", "connect-sinks")


def cut_plan(plan: Plan, cut: Cut) -> None:
    for name in cut.without:
        PARTS.get(name, lambda _: None)(plan)
    if cut.calls_max is not None:
        most = cut.calls_max
        plan.calls = min(plan.calls, most)
        plan.idempotent.batches = min(plan.idempotent.batches, most)
        plan.copiers.calls = min(plan.copiers.calls, most)
        plan.copiers.records = min(plan.copiers.records, most)


def cut_janitors(plan: JanitorPlan, cut: Cut) -> JanitorPlan:
    if "janitors" in cut.without:
        plan = replace(plan, janitors=0, writers=0)
    if "sweeps" in cut.without:
        plan = replace(plan, sweeps=False)
    calls = plan.calls if cut.calls_max is None else min(plan.calls, cut.calls_max)
    return replace(plan, calls=calls)


def cut_kafka(plan: KafkaPlan, cut: Cut) -> KafkaPlan:
    if "kafka" in cut.without:
        plan = replace(plan, share=0.0)
    if "sealing" in cut.without:
        plan = replace(plan, is_sealed=False)
    if "net" in cut.without:
        plan = replace(plan, net=NetPlan())
    return plan


def cut_schemas(plan: SchemaPlan, cut: Cut) -> SchemaPlan:
    if "schemas" in cut.without:
        plan = replace(plan, clients=0)
    if "schema-deletes" in cut.without:
        plan = replace(plan, deletes=0.0)
    if "schema-rules" in cut.without:
        plan = replace(plan, rules=0.0)
    if "net" in cut.without:
        plan = replace(plan, net=NetPlan())
    calls = plan.calls if cut.calls_max is None else min(plan.calls, cut.calls_max)
    return replace(plan, calls=calls)


def cut_connect(plan: ConnectPlan, cut: Cut) -> ConnectPlan:
    if "connect" in cut.without:
        plan = replace(plan, sources=0)
    if "connect-calls" in cut.without:
        plan = replace(plan, clients=0)
    if "connect-faults" in cut.without:
        plan = replace(plan, faults=0.0)
    if "connect-sinks" in cut.without:
        plan = replace(plan, sinks=())
    if not plan.is_on:
        plan = replace(plan, sinks=())
    if "net" in cut.without:
        plan = replace(plan, net=NetPlan())
    if cut.calls_max is None:
        return plan
    most = cut.calls_max
    return replace(plan, calls=min(plan.calls, most), numbers=min(plan.numbers, most))
