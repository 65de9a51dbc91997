"""Everything that was seen in one run, and whether it may have happened."""

from dataclasses import dataclass, field

from tests.checker.group_rules import GROUP_RULES, GroupHistory
from tests.checker.idempotent_rules import IDEMPOTENT_RULES, IdempotentHistory
from tests.checker.keyed_rules import KEYED_RULES, KeyedHistory
from tests.checker.log_rules import LOG_RULES, LogHistory
from tests.checker.transaction_rules import TRANSACTION_RULES, TransactionHistory


@dataclass
class History(LogHistory):
    group: GroupHistory = field(default_factory=GroupHistory)
    idempotent: IdempotentHistory = field(default_factory=IdempotentHistory)
    transactions: TransactionHistory = field(default_factory=TransactionHistory)
    keyed: KeyedHistory = field(default_factory=KeyedHistory)
    damage: list[str] = field(default_factory=list)
    """What a check of all stores found wrong at the end."""
    stuck: list[str] = field(default_factory=list)
    """What did not move again after the faults had ended."""
    batches: int = 0
    """Flushes that went into the table, by gateways that were not killed."""


def violations(history: History) -> list[str]:
    """Return every broken rule, in words."""
    found = [(rule, problem) for rule in LOG_RULES for problem in rule(history)]
    found += [(r, problem) for r in GROUP_RULES for problem in r(history.group, history.final)]
    found += [
        (r, problem) for r in IDEMPOTENT_RULES for problem in r(history.idempotent, history.final)
    ]
    found += [(r, problem) for r in TRANSACTION_RULES for problem in r(history.transactions)]
    found += [(r, problem) for r in KEYED_RULES for problem in r(history.keyed)]
    return [f"{rule.__name__}: {problem}" for rule, problem in found]
