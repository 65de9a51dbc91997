"""All rules together: each is in RULES.md, two histories break each, and none is slow."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.checker.connect_rules import CONNECT_RULES
from tests.checker.door_rules import DOOR_RULES
from tests.checker.ending_rules import ENDING_RULES
from tests.checker.exactly_once_rules import EXACTLY_ONCE_RULES
from tests.checker.group_rules import GROUP_RULES
from tests.checker.history import RULES, History, violations
from tests.checker.idempotent_rules import IDEMPOTENT_RULES
from tests.checker.keyed_rules import KEYED_RULES, KeyedHistory, Look, Written
from tests.checker.log_rules import LOG_RULES
from tests.checker.operations import entries
from tests.checker.sample import sample
from tests.checker.schema_rules import SCHEMA_RULES
from tests.checker.test_connect_rules import BROKEN as BROKEN_CONNECT
from tests.checker.test_door_rules import BROKEN as BROKEN_DOORS
from tests.checker.test_group_rules import BROKEN as BROKEN_GROUPS
from tests.checker.test_idempotent_rules import BROKEN as BROKEN_COPIES
from tests.checker.test_keyed_rules import BROKEN as BROKEN_KEYED
from tests.checker.test_log_rules import BROKEN as BROKEN_LOGS
from tests.checker.test_schema_rules import BROKEN as BROKEN_SCHEMAS
from tests.checker.test_transaction_rules import BROKEN as BROKEN_TRANSACTIONS
from tests.checker.transaction_rules import TRANSACTION_RULES
from tests.torture.sizes import FULL

BROKEN_AS_A_WHOLE = [
    ("every_referenced_object_exists", History(damage=["object 1 is missing"])),
    ("every_referenced_object_exists", History(damage=["object 2 is short", "3 is another"])),
    ("after_the_faults_nothing_is_stuck", History(stuck=["partition 0"])),
    ("after_the_faults_nothing_is_stuck", History(stuck=["partition 0", "a reader"])),
]
BROKEN = [
    *BROKEN_LOGS,
    *BROKEN_GROUPS,
    *BROKEN_COPIES,
    *BROKEN_TRANSACTIONS,
    *BROKEN_KEYED,
    *BROKEN_DOORS,
    *BROKEN_SCHEMAS,
    *BROKEN_CONNECT,
    *BROKEN_AS_A_WHOLE,
]

FAMILIES = (
    LOG_RULES,
    GROUP_RULES,
    IDEMPOTENT_RULES,
    TRANSACTION_RULES,
    ENDING_RULES,
    EXACTLY_ONCE_RULES,
    KEYED_RULES,
    DOOR_RULES,
    SCHEMA_RULES,
    CONNECT_RULES,
)
OPERATIONS = 200_000 if FULL else 50_000

PAGE = (Path(__file__).parent / "RULES.md").read_text()


def test_no_two_rules_have_the_same_name() -> None:
    of_all_histories = 2
    assert len(RULES) == sum(map(len, FAMILIES)) + of_all_histories


def test_rules_md_names_every_rule_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    promised = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    errors = set(re.findall(r"`(\w+_errors)`", PAGE))

    assert promised | errors == RULES.keys()
    assert [f"I{n}" for n in range(1, 20)] == re.findall(r"^\| (I\d+) \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_broken_by_two_histories(rule: str) -> None:
    assert Counter(name for name, _ in BROKEN)[rule] >= 2


@pytest.mark.parametrize(("rule", "broken"), BROKEN_AS_A_WHOLE)
def test_a_broken_history_is_reported_by_its_rule(rule: str, broken: History) -> None:
    assert list(RULES[rule](broken))


def test_an_empty_history_breaks_no_rule() -> None:
    assert violations(History()) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_sample_breaks_no_rule(seed: int) -> None:
    assert violations(sample(500, seed)) == []


@pytest.mark.slow
def test_a_long_history_is_checked_in_time() -> None:
    """Rules that compare all operations with all others would take hours."""
    long = sample(OPERATIONS)

    assert len(entries(long)) >= OPERATIONS
    assert violations(long) == []


def test_reads_over_many_removed_keys_are_checked_in_time() -> None:
    """All tombstones have been removed, as they may be; each look skips all of them."""
    count = 50_000
    written = [Written(0, f"k{n}", None, n, n + 0.5, n, False) for n in range(count)]
    looks = [Look(0, 0, 1e6 + n, (), count) for n in range(count)]
    keyed = KeyedHistory(written=written, looks=looks, tombstone_s=1000, final={0: []})

    assert violations(History(keyed=keyed)) == []
