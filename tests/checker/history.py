"""Everything that was observed in one run, and whether it breaks a rule.

`RULES` has every rule by its name; `tests/checker/RULES.md` names the promise that each rule
checks. The time of a rule grows about linearly with the history.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.checker.connect_history import ConnectHistory
from tests.checker.connect_rules import CONNECT_RULES
from tests.checker.door_rules import DOOR_RULES, DoorHistory
from tests.checker.ending_rules import ENDING_RULES
from tests.checker.exactly_once_rules import EXACTLY_ONCE_RULES
from tests.checker.group_rules import GROUP_RULES, GroupHistory
from tests.checker.idempotent_rules import IDEMPOTENT_RULES, IdempotentHistory
from tests.checker.keyed_rules import KEYED_RULES, KeyedHistory
from tests.checker.log_rules import LOG_RULES, LogHistory
from tests.checker.schema_history import SchemaHistory
from tests.checker.schema_rules import SCHEMA_RULES
from tests.checker.transaction_rules import TRANSACTION_RULES, TransactionHistory


@dataclass
class History(LogHistory):
    group: GroupHistory = field(default_factory=GroupHistory)
    idempotent: IdempotentHistory = field(default_factory=IdempotentHistory)
    transactions: TransactionHistory = field(default_factory=TransactionHistory)
    keyed: KeyedHistory = field(default_factory=KeyedHistory)
    doors: DoorHistory = field(default_factory=DoorHistory)
    schemas: SchemaHistory = field(default_factory=SchemaHistory)
    connect: ConnectHistory = field(default_factory=ConnectHistory)
    damage: list[str] = field(default_factory=list)
    """Problems that a check of all stores found at the end."""
    stuck: list[str] = field(default_factory=list)
    """Clients and jobs that made no progress after the faults had ended."""
    batches: int = 0
    """Flushes written into the table, counted by gateways that were not killed."""


def every_referenced_object_exists(history: History) -> Iterator[str]:
    """A check of all stores found every object with its checksum."""
    yield from history.damage


def after_the_faults_nothing_is_stuck(history: History) -> Iterator[str]:
    yield from history.stuck


Rule = Callable[[History], Iterator[str]]


def _of_group(rule: Callable[[GroupHistory, LogHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.group, history)


def _of_idempotent(rule: Callable[[IdempotentHistory, LogHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.idempotent, history)


def _of_doors(rule: Callable[[DoorHistory, LogHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.doors, history)


def _of_transactions(rule: Callable[[TransactionHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.transactions)


def _of_schemas(rule: Callable[[SchemaHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.schemas)


def _of_connect(rule: Callable[[ConnectHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.connect)


def _of_keyed(rule: Callable[[KeyedHistory], Iterator[str]]) -> Rule:
    return lambda history: rule(history.keyed)


RULES: Mapping[str, Rule] = {
    **{rule.__name__: rule for rule in LOG_RULES},
    **{rule.__name__: _of_group(rule) for rule in GROUP_RULES},
    **{rule.__name__: _of_idempotent(rule) for rule in IDEMPOTENT_RULES},
    **{rule.__name__: _of_transactions(rule) for rule in TRANSACTION_RULES},
    **{rule.__name__: _of_transactions(rule) for rule in ENDING_RULES},
    **{rule.__name__: _of_transactions(rule) for rule in EXACTLY_ONCE_RULES},
    **{rule.__name__: _of_keyed(rule) for rule in KEYED_RULES},
    **{rule.__name__: _of_doors(rule) for rule in DOOR_RULES},
    **{rule.__name__: _of_schemas(rule) for rule in SCHEMA_RULES},
    **{rule.__name__: _of_connect(rule) for rule in CONNECT_RULES},
    every_referenced_object_exists.__name__: every_referenced_object_exists,
    after_the_faults_nothing_is_stuck.__name__: after_the_faults_nothing_is_stuck,
}


def violations(history: History) -> list[str]:
    """Return every broken rule, in words."""
    return [f"{name}: {problem}" for name, rule in RULES.items() for problem in rule(history)]
