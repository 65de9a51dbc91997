"""Each rule of the schema registry reports the histories that break it, and no others."""

from dataclasses import replace

import pytest

from tests.checker.history import History, violations
from tests.checker.schema_history import (
    Deleting,
    Numbered,
    Referring,
    Registering,
    SchemaHistory,
    SchemaLook,
    StoredSchema,
    StoredSubject,
    SubjectChange,
)
from tests.checker.schema_rules import keeps

A = Registering(1, "s", "int.0", 1, 2, 0, 1, 1)
B = Registering(2, "s", "long.0", 3, 4, 0, 2, 2)
ELSEWHERE = Registering(2, ":.x:s", "text.0", 3, 4, 0, 1, 1)
REFUSED = Registering(2, "s", "string.0", 3, 4, 409)
UNKNOWN = Registering(2, "s", "string.1", 3, 4, None)
GONE = Deleting(1, "s", 1, False, 5, 6, 0, (1,))
ERASED = Deleting(1, "s", 1, True, 7, 8, 0, (1,))
BY_ID = SchemaLook(3, "id", ".", "1", 9, 10, 0, "int.0", 1)
BY_VERSION = SchemaLook(3, "version", "s", "1", 9, 10, 0, "int.0", 1, 1)
BY_SCHEMA = SchemaLook(3, "schema", "s", "int.0", 9, 10, 0, "int.0", 1, 1)
LIST = SchemaLook(3, "versions", "s", "", 9, 10, 0, listed=(1, 2))
FIRST = StoredSchema(".", 1, "int.0", 1, 1, ("s",))
SECOND = StoredSchema(".", 2, "long.0", 2, 2, ("s",))
THERE = StoredSubject("s", (Numbered(1, 1), Numbered(2, 2)))
CHANGE = SubjectChange(2, "s", (), (Numbered(1, 1),), "BACKWARD", "READWRITE")
LEVEL = replace(CHANGE, was=(Numbered(1, 1),), became=(Numbered(1, 1), Numbered(2, 2)))
MISSED = {"code": 40402, "schema": None, "schema_id": None, "version": None}
TO = Referring("out", 1, False, "s", 1, "live")
OUT = StoredSchema(".", 2, "int.0>s:1", 2, 2, ("out",), (("s", 1),))


def seen(*parts: object, final: tuple[object, ...] = (), last: int | None = None) -> History:
    """Return a history of these records; with `last`, of a default context that has this id."""
    history = SchemaHistory(last_ids={} if last is None else {".": last})
    lists = {
        Registering: history.registered,
        Deleting: history.deleted,
        SchemaLook: history.looks,
        SubjectChange: history.changes,
        StoredSchema: history.schemas,
        StoredSubject: history.subjects,
        str: history.errors,
    }
    for part in (*parts, *final):
        lists[type(part)].append(part)  # type: ignore[index, attr-defined]
    return History(schemas=history)


ALL = (FIRST, SECOND, THERE)


BROKEN = [
    ("the_same_schema_has_one_id", seen(A, replace(A, subject="t", schema_id=2))),
    ("the_same_schema_has_one_id", seen(A, final=(replace(FIRST, schema_id=3),))),
    ("the_same_schema_has_one_id", seen(A, replace(BY_SCHEMA, schema_id=4))),
    ("one_id_one_schema", seen(A, replace(B, schema_id=1))),
    ("one_id_one_schema", seen(A, replace(BY_ID, schema="long.0"))),
    ("ids_are_dense", seen(A, B, final=(FIRST, THERE), last=2)),
    ("ids_are_dense", seen(A, replace(B, schema_id=7), final=ALL, last=2)),
    ("ids_are_dense", seen(A, B, ELSEWHERE, final=ALL, last=2)),
    ("versions_have_no_gaps", seen(A, replace(B, version=3))),
    ("versions_have_no_gaps", seen(A, replace(LIST, listed=(1, 2, 4)))),
    ("versions_have_no_gaps", seen(final=(replace(THERE, versions=(Numbered(2, 2),)),))),
    ("each_version_keeps_the_level", seen(replace(A, schema="string.0"), B, LEVEL)),
    ("each_version_keeps_the_level", seen(A, B, replace(LEVEL, level="FORWARD"))),
    (
        "each_version_keeps_the_level",
        seen(
            A,
            replace(B, schema="string.0"),
            Registering(1, "s", "bytes.0", 5, 6, 0, 3, 3),
            replace(LEVEL, was=LEVEL.became, became=(Numbered(3, 3),), level="FULL_TRANSITIVE"),
        ),
    ),
    ("nothing_is_half_registered", seen(A, B, final=(FIRST, THERE))),
    ("nothing_is_half_registered", seen(final=(replace(FIRST, digest_id=None), SECOND, THERE))),
    ("nothing_is_half_registered", seen(final=(FIRST, replace(SECOND, guid_id=1), THERE))),
    ("nothing_is_half_registered", seen(final=(FIRST, replace(SECOND, users=()), THERE))),
    (
        "nothing_is_half_registered",
        seen(final=(OUT, StoredSubject("out", (Numbered(1, 2),)), FIRST, THERE)),
    ),
    ("what_was_registered_is_found", seen(A, replace(BY_ID, **MISSED))),
    ("what_was_registered_is_found", seen(A, GONE, replace(BY_ID, **MISSED))),
    ("what_was_registered_is_found", seen(A, replace(BY_VERSION, **MISSED))),
    ("what_was_registered_is_found", seen(A, B, replace(BY_SCHEMA, **MISSED))),
    (
        "what_was_registered_is_found",
        seen(A, replace(GONE, code=42206, gone=()), replace(BY_VERSION, **MISSED)),
    ),
    ("what_was_registered_is_found", seen(A, final=(replace(THERE, versions=()),), last=1)),
    ("what_was_deleted_is_not_listed", seen(A, B, GONE, LIST)),
    ("what_was_deleted_is_not_listed", seen(A, GONE, BY_VERSION)),
    ("what_was_deleted_is_not_listed", seen(A, B, GONE, final=ALL, last=2)),
    (
        "what_is_referred_to_is_not_deleted",
        seen(replace(CHANGE, references=(TO, TO._replace(state="deleted")))),
    ),
    (
        "what_is_referred_to_is_not_deleted",
        seen(replace(CHANGE, references=(TO._replace(state="gone", is_by_deleted=True),))),
    ),
    ("nothing_changes_while_it_is_read_only", seen(replace(CHANGE, mode="READONLY"))),
    ("nothing_changes_while_it_is_read_only", seen(CHANGE, replace(LEVEL, mode="READONLY"))),
    ("refused_schemas_are_not_stored", seen(REFUSED, final=(replace(FIRST, schema="string.0"),))),
    ("refused_schemas_are_not_stored", seen(A, final=ALL)),
    ("registry_clients_meet_no_other_errors", seen("register: 500")),
    ("registry_clients_meet_no_other_errors", seen(A, "delete: 42201", "look: 409")),
]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, history: History) -> None:
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


@pytest.mark.parametrize(
    "history",
    [
        seen(A, B, BY_ID, BY_VERSION, BY_SCHEMA, LIST, CHANGE, LEVEL, final=ALL, last=2),
        seen(A, UNKNOWN, final=(FIRST, replace(THERE, versions=(Numbered(1, 1),))), last=1),
        # A deleted version is not found, and the schema still is.
        seen(A, GONE, replace(BY_VERSION, **MISSED), replace(BY_SCHEMA, **MISSED), BY_ID),
        # Nobody knows whether it was deleted, or the list is a second old.
        seen(A, B, replace(GONE, code=None, gone=()), replace(BY_VERSION, **MISSED), LIST),
        seen(A, B, GONE, replace(LIST, began_s=6.9)),
        # What was erased leaves its number free.
        seen(A, B, GONE, ERASED, LIST),
        # It was registered after the question.
        seen(A, replace(BY_ID, began_s=1.5, **MISSED)),
        seen(REFUSED, final=(StoredSubject("t", ()),), last=0),
        seen(replace(CHANGE, references=(TO, TO._replace(state="deleted", is_by_deleted=True)))),
        # Another context has ids of its own.
        seen(A, ELSEWHERE),
    ],
)
def test_allowed_histories_break_no_rule(history: History) -> None:
    assert violations(history) == []


@pytest.mark.parametrize(
    ("level", "new", "old", "is_kept"),
    [
        ("BACKWARD", "long.1", "int.1", True),
        ("BACKWARD", "int.1", "long.1", False),
        ("FORWARD_TRANSITIVE", "int.1", "double.1", True),
        ("FULL", "string.1", "bytes.2>base:1", True),
        ("FULL", "long.1", "int.1", False),
        ("NONE", "string.1", "int.1", True),
    ],
)
def test_levels_are_those_of_numbers_and_texts(
    level: str, new: str, old: str, is_kept: bool
) -> None:
    assert keeps(level, new, old) is is_kept
