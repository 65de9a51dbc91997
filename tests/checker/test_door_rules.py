"""Each rule of records across doors reports the histories that break it, and no others."""

import pytest

from tests.checker.door_rules import DoorHistory, ReadContent, SentContent
from tests.checker.history import RULES, History, violations

SENT = [SentContent("a", "1 b'k' []"), SentContent("b", "2 None [('h', None)]")]
BY_HTTP = ReadContent("http", 0, 0, "a", "1 b'k' []")
BY_KAFKA = ReadContent("kafka", 0, 0, "a", "1 b'k' []")
SECOND = ReadContent("kafka", 0, 1, "b", "2 None [('h', None)]")


def doors(*read: ReadContent, errors: list[str] | None = None) -> History:
    return History(doors=DoorHistory(sent=SENT, read=[*read], errors=errors or []))


BROKEN = [
    ("every_record_is_as_it_was_sent", doors(ReadContent("kafka", 0, 0, "a", "1 None []"))),
    ("every_record_is_as_it_was_sent", doors(BY_HTTP, ReadContent("http", 0, 1, "b", "2 None []"))),
    ("every_door_shows_the_same_record", doors(BY_HTTP, ReadContent("kafka", 0, 0, "c", "3"))),
    (
        "every_door_shows_the_same_record",
        doors(BY_KAFKA, SECOND, ReadContent("http", 0, 0, "a", "1 b'k' [('h', b'')]")),
    ),
    ("clients_of_kafka_meet_no_other_errors", doors(errors=["Produce: UNKNOWN_SERVER_ERROR"])),
    ("clients_of_kafka_meet_no_other_errors", doors(BY_HTTP, errors=["a request failed", "2"])),
]


@pytest.mark.parametrize(("rule", "broken"), BROKEN)
def test_a_broken_history_is_reported_by_its_rule(rule: str, broken: History) -> None:
    assert list(RULES[rule](broken))


def test_records_that_are_the_same_through_both_doors_break_no_rule() -> None:
    assert violations(doors(BY_HTTP, BY_KAFKA)) == []


def test_a_record_of_which_nothing_was_noted_may_be_anything() -> None:
    other = [ReadContent(door, 3, 7, "z", "9") for door in ("http", "kafka")]
    assert list(RULES["every_record_is_as_it_was_sent"](doors(*other))) == []
