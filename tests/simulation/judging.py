"""The result of one seed: violations, the smallest history that shows one, and what occurred."""

import gc
import random
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tests.checker import idempotent_rules, transaction_rules
from tests.checker.connect_history import LETTERS, ConnectHistory
from tests.checker.history import violations
from tests.checker.schema_history import SchemaHistory
from tests.checker.smallest import lines, smallest
from tests.simulation.cuts import WHOLE, Cut
from tests.simulation.plan import Plan
from tests.simulation.shrinking import shrunk
from tests.simulation.simulator import Simulation, run

BROKE_OFF = "the run broke off"


@dataclass(frozen=True)
class Result:
    seed: int
    wrong: list[str]
    shown_by: str
    """The smallest history that shows the first violation, as operations."""
    met: Counter[str]
    """How often each kind of event occurred."""
    simulated_s: float
    cut: Cut = WHOLE
    """The largest cut with which it still fails, if shrinking was tried."""


def prepare_worker() -> None:
    """Prepare for many runs: exclude imported objects from garbage collection."""
    gc.collect()
    gc.freeze()


def judge(seed: int, cut: Cut = WHOLE) -> Result:
    """Run a seed and check it; a run that raises an exception fails, too."""
    gc.collect()  # Garbage of the run before.
    try:
        simulation = run(seed, cut)
    except Exception as error:  # noqa: BLE001
        trace = "".join(traceback.format_exception(error))
        return Result(seed, [f"{BROKE_OFF}: {error!r}"], trace, Counter(), 0.0)
    return judged(simulation)


def judged(simulation: Simulation) -> Result:
    history = simulation.history
    wrong = violations(history)
    shown_by = lines(smallest(history, wrong[0])) if wrong else ""
    return Result(simulation.seed, wrong, shown_by, met_in(simulation), simulation.loop.now_s)


def judge_and_shrink(seed: int, seconds_max: float) -> Result:
    """Run a seed; if it fails, search for the fewest faults, for at most `seconds_max`."""
    result = judge(seed)
    if not result.wrong or not seconds_max:
        return result
    events = Plan.of(random.Random(seed)).troubles
    cut = shrunk(
        lambda smaller: _broken(seed, smaller),
        result.wrong[0].partition(": ")[0],
        events,
        seconds_max=seconds_max,
    )
    return replace(result, cut=cut)


def _broken(seed: int, cut: Cut) -> set[str]:
    """Return the names of the rules that are broken."""
    gc.collect()
    try:
        wrong = violations(run(seed, cut).history)
    except Exception:  # noqa: BLE001
        return {BROKE_OFF}
    return {line.partition(": ")[0] for line in wrong}


def met_in(simulation: Simulation) -> Counter[str]:
    """Return how often each kind of event occurred in the run."""
    history, plan = simulation.history, simulation.plan
    keyed, transactions = history.keyed, history.transactions
    met = Counter({f"trouble: {kind}": n for kind, n in simulation.trouble.counts.items()})
    met["trouble: stop at a call"] = simulation.stops_at_calls
    met["zones: several"] = len(plan.zones) > 1
    met["zones: out of sync"] = simulation.out_of_sync
    met["zones: copies repaired"] = simulation.repaired
    met["log: acknowledged calls"] = sum(call.base is not None for call in history.produced)
    met["log: unknown outcomes"] = sum(call.may_have_applied for call in history.produced)
    met["log: refused calls"] = sum(
        call.base is None and not call.may_have_applied for call in history.produced
    )
    met["log: fetches"] = len(history.fetched)
    met["log: trimmed partitions"] = sum(start > 0 for start in history.log_starts.values())
    met["log: batches in the table"] = history.batches
    met["log: with batches in the table"] = history.batches > 0
    met["log: without batches in the table"] = history.batches == 0
    met["group: generations"] = len({told.generation for told in history.group.told})
    met["group: with more than 20 generations"] = met["group: generations"] > 20
    met["group: drained"] = history.group.is_drained is True
    met["group: deliveries"] = len(history.group.delivered)
    met["group: commits in doubt"] = sum(not commit.acked for commit in history.group.commits)
    met["jobs: compacted partitions"] = keyed.compacted
    met["jobs: swept objects"] = keyed.swept
    met["jobs: swept batches"] = keyed.swept_batches
    met["jobs: lost leases"] = keyed.lost_leases
    met["jobs: killed"] = keyed.killed
    met["jobs: reads of compacted logs"] = sum(
        len(look.records) < look.next_offset - look.asked for look in keyed.looks
    )
    met["jobs: reads without gaps"] = sum(
        len(look.records) == look.next_offset - look.asked for look in keyed.looks
    )
    met["jobs: tombstones read"] = sum(
        record.value is None for look in keyed.looks for record in look.records
    )
    by_door = Counter(read.door for read in history.doors.read)
    met["kafka: runs"] = simulation.kafka_plan.is_on
    met["kafka: runs with sealed slices"] = bool(by_door) and simulation.kafka_plan.is_sealed
    met["kafka: records read by HTTP"] = by_door["http"]
    met["kafka: records read by Kafka"] = by_door["kafka"]
    met.update({f"kafka: {what}": count for what, count in simulation.kafka.counts.items()})
    transacted = simulation.exactly_once.kafka.counts
    met.update({f"kafka: {what}": count for what, count in transacted.items()})
    met.update(_met_in_schemas(history.schemas))
    met["connect: runs"] = simulation.connect.plan.is_on
    met.update(_met_in_connect(history.connect))
    if simulation.connect.plan.is_on:
        met["connect: failures of tasks"] = simulation.connect.watch.failures
    met.update(f"idempotent: {sent.answer}" for sent in history.idempotent.sent)
    met.update(f"transactions: {ending.answer}" for ending in transactions.endings)
    return met


def _met_in_schemas(schemas: SchemaHistory) -> Counter[str]:
    codes = Counter(each.code for each in schemas.registered)
    removals = [each for each in schemas.deleted if each.code == 0]
    return Counter(
        {
            "schemas: registrations": codes[0],
            "schemas: unknown outcomes": codes[None],
            "schemas: incompatible": codes[409],
            "schemas: refused in mode READONLY": codes[42205],
            "schemas: versions with references": sum(
                each.code == 0 and ">" in each.schema for each in schemas.registered
            ),
            "schemas: deletions": len(removals),
            "schemas: permanent deletions": sum(each.is_permanent for each in removals),
            "schemas: referred to, and not deleted": sum(
                each.code == 42206 for each in schemas.deleted
            ),
            "schemas: questions": len(schemas.looks),
            "schemas: changes of a subject": len(schemas.changes),
        }
    )


def _met_in_connect(connect: ConnectHistory) -> Counter[str]:
    codes = Counter(each.code for each in connect.commits)
    held = {(each.connector, each.partition, each.offset) for each in connect.taken}
    return Counter(
        {
            "connect: tasks begun": len({each.run for each in connect.commits}),
            "connect: commits": codes[0],
            "connect: unknown commits": codes[None],
            "connect: records in the log": sum(
                len(of) for place, of in connect.final.items() if not place[0].startswith(LETTERS)
            ),
            "connect: dead letters": sum(
                len(of) for place, of in connect.final.items() if place[0].startswith(LETTERS)
            ),
            "connect: records in targets": len(connect.taken),
            "connect: records twice in targets": len(connect.taken) - len(held),
            "connect: pauses and stops": sum(
                each.code == 0 and each.does in {"pause", "stop"} for each in connect.calls
            ),
            "connect: changes": sum(
                each.code == 0 and each.does == "change" for each in connect.calls
            ),
        }
    )


WANTED: Mapping[str, int] = {
    "trouble: kill": 100,
    "trouble: stop": 100,
    "trouble: throttle": 50,
    "trouble: away": 20,
    "trouble: hang": 10,
    "trouble: blink": 20,
    "trouble: move": 20,
    "trouble: wipe": 1,
    "trouble: lose": 1,
    "zones: copies repaired": 1,
    "trouble: stop at a call": 200,
    "zones: several": 30,
    "zones: out of sync": 20,
    "log: acknowledged calls": 10_000,
    "log: unknown outcomes": 100,
    "log: refused calls": 100,
    "log: fetches": 10_000,
    "log: trimmed partitions": 50,
    "log: batches in the table": 501,
    "log: with batches in the table": 11,
    "log: without batches in the table": 1,
    "group: generations": 200,
    "group: with more than 20 generations": 1,
    "group: drained": 1,
    "group: deliveries": 500,
    "group: commits in doubt": 10,
    "jobs: compacted partitions": 101,
    "jobs: swept objects": 101,
    "jobs: swept batches": 21,
    "jobs: lost leases": 11,
    "jobs: killed": 51,
    "jobs: reads of compacted logs": 100,
    "jobs: reads without gaps": 1,
    "jobs: tombstones read": 1,
    "kafka: runs": 60,
    "kafka: runs with sealed slices": 10,
    "kafka: records read by HTTP": 1_000,
    "kafka: records read by Kafka": 10_000,
    "kafka: acknowledged batches": 2_000,
    "kafka: batches with unknown outcomes": 100,
    "kafka: refused batches": 50,
    "kafka: numbered batches": 500,
    "kafka: deliveries to classic members": 50,
    "kafka: deliveries to consumer members": 50,
    "kafka: transactions of newer clients, committed": 100,
    "kafka: transactions of newer clients, aborted": 50,
    "kafka: transactions of older clients, committed": 80,
    "kafka: transactions of older clients, aborted": 8,
    "kafka: transactions, fenced": 40,
    "kafka: epochs asked for": 5,
    "schemas: registrations": 500,
    "schemas: unknown outcomes": 100,
    "schemas: incompatible": 100,
    "schemas: refused in mode READONLY": 10,
    "schemas: versions with references": 15,
    "schemas: deletions": 30,
    "schemas: permanent deletions": 4,
    "schemas: referred to, and not deleted": 1,
    "schemas: questions": 500,
    "connect: runs": 20,
    "connect: tasks begun": 200,
    "connect: failures of tasks": 20,
    "connect: commits": 1_000,
    "connect: unknown commits": 20,
    "connect: records in the log": 1_000,
    "connect: dead letters": 100,
    "connect: records in targets": 1_000,
    "connect: records twice in targets": 5,
    "connect: pauses and stops": 50,
    "connect: changes": 20,
    f"idempotent: {idempotent_rules.ACKED}": 1_000,
    f"idempotent: {idempotent_rules.UNKNOWN}": 10,
    f"idempotent: {idempotent_rules.OUT_OF_ORDER}": 10,
    f"idempotent: {idempotent_rules.STALE}": 10,
    f"idempotent: {idempotent_rules.DUPLICATE}": 1,
    f"transactions: {transaction_rules.COMMITTED}": 1_000,
    f"transactions: {transaction_rules.ABORTED}": 50,
    f"transactions: {transaction_rules.REFUSED}": 10,
    f"transactions: {transaction_rules.FENCED}": 10,
    f"transactions: {transaction_rules.OUTDATED}": 1,
    f"transactions: {transaction_rules.UNKNOWN}": 50,
}
"""Events that a large number of seeds must meet, and how often, to prove enough."""

ENOUGH_SEEDS = 200


def unmet(results: Iterable[Result]) -> list[str]:
    total: Counter[str] = sum((result.met for result in results), Counter())
    return [name for name, count in WANTED.items() if total[name] < count]
