"""Histories are written and read back, whole or in parts; other files are refused."""

import dataclasses
import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker import idempotent_rules, transaction_rules
from tests.checker.connect_history import (
    PositionChange,
    RunCommit,
    StateCall,
    StoredConnector,
    Taken,
    TaskChange,
)
from tests.checker.door_rules import ReadContent, SentContent
from tests.checker.facts import COMPLAINTS, FACTS, paths_of
from tests.checker.group_rules import Assigned, Committing, Delivered, Read, Seen
from tests.checker.history import History
from tests.checker.idempotent_rules import Line, Sent
from tests.checker.keyed_rules import Look, Record, Written
from tests.checker.kinds import KIND_OF, KINDS
from tests.checker.log_rules import Fetched, Produced
from tests.checker.operations import (
    Entry,
    MalformedHistory,
    dump,
    encode,
    entries,
    history_from,
    history_of,
    load,
    merge,
    operation_of,
    operations,
)
from tests.checker.schema_history import (
    Deleting,
    Numbered,
    Referring,
    Registering,
    SchemaLook,
    StoredSchema,
    StoredSubject,
    SubjectChange,
)
from tests.checker.transaction_rules import Attempt, Ending, Instance, Moment, Shown

P = ("copies", 1)
RECORDS: list[Any] = [
    Produced(0, 1, ("a", "b"), 1, 2, 7, may_have_applied=False),
    Produced(0, 1, ("c",), 2, 3, None, may_have_applied=True),
    Produced(0, 1, ("c",), 3, 4, None, may_have_applied=False),
    Produced(0, 1, ("c",), 4, 5, 9, may_have_applied=True),
    Fetched(2, 1, 7, 5, ((7, "a"), (8, "b")), 9, 9, waited=False),
    Fetched(2, 1, 9, 6, (), 9, 9, waited=True, ended_s=7.5, log_start=3),
    Assigned("m", 3, (0, 1), 1, 2),
    Read("m", 0, 1, 8, 7),
    Delivered("m", 3, 0, range(2, 5), 2, 3),
    Committing("m", 3, 0, 5, 4, acked=True),
    Committing("m", 3, 0, 5, 5, acked=False),
    Seen(6, {0: 5, 11: 2}),
    Sent(Line(4, 0, 1), 3, ("d",), 1, 2, idempotent_rules.ACKED, 3),
    Sent(Line(4, 0, 1), 4, ("e",), 1, 2, idempotent_rules.UNKNOWN),
    Sent(Line(4, 0, 1), 4, ("e",), 2, 3, idempotent_rules.OUT_OF_ORDER),
    Sent(Line(4, 0, 1), 3, ("d",), 3, 4, idempotent_rules.DUPLICATE),
    Attempt("c.1.0", {P: ("f", "g"), ("copies", 0): ()}, {0: 2}),
    Ending("c.1.0", transaction_rules.COMMITTED, 1, 2, transaction_rules.UNKNOWN),
    Ending("c.1.0", transaction_rules.COMMITTED, 2, 3, transaction_rules.COMMITTED, (1, 1), {P: 4}),
    Ending("c.1.0", transaction_rules.ABORTED, 3, 4, transaction_rules.REFUSED),
    Instance("c", 1, 0, 1, 0.5),
    Shown(P, 1, 2, ((4, "f"),), 6, is_end_of_now=True),
    Moment(3, {0: 2}, 2),
    Written(0, "k", None, 1, 2, 5, may_have_applied=False),
    Written(0, "k", "v", 1, 2, None, may_have_applied=True),
    Look(0, 0, 3, (Record(5, "k", None), Record(6, "l", "v")), 7),
    SentContent("a", "1 b'k' (1, 7) []"),
    ReadContent("kafka", 1, 7, "a", "1 b'k' (1, 7) []"),
    Registering(1, "s", "int.0", 1, 2, 0, 1, 1),
    Registering(1, "s", "long.0", 2, 3, None),
    Registering(1, "s", "string.0", 3, 4, 409),
    Deleting(2, "s", 1, False, 4, 5, 0, (1,)),
    Deleting(2, "s", 0, True, 4, 5, None),
    SchemaLook(1, "id", ".", "1", 4, 5, 0, "int.0", 1),
    SchemaLook(1, "versions", "s", "", 5, 6, 0, listed=(1, 2)),
    SchemaLook(1, "version", "s", "3", 6, 7, 40402),
    SubjectChange(
        1.5,
        "s",
        (),
        (Numbered(1, 1),),
        "BACKWARD",
        "READWRITE",
        (Referring("s", 1, False, "t", 1, "live"),),
    ),
    StoredSchema(".", 1, "int.0>t:1", 1, None, ("s",), (("t", 1),)),
    StoredSubject("s", (Numbered(1, 1, is_deleted=True),), ((1, "t", 1),)),
    RunCommit("c", 0, 1, 2, 1, 2, 0, "ab"),
    RunCommit("c", 0, 1, 2, 2, 3, None),
    TaskChange(1.5, "c", 0, "ab", 2),
    PositionChange(1.5, "c", 0, 7),
    StateCall(1, "c", "pause", 1, 2, 0),
    StateCall(1, "c", "resume", 2, 3, None),
    Taken("k", "t", 0, 7, "c/0:7", 2),
    StoredConnector("k", "plain", "PAUSED", (), "t", {0: 8}),
]


def full_history() -> History:
    """Return a history with every kind of record."""
    history = history_from(Entry(KIND_OF[type(record)], record) for record in RECORDS)
    history.final = {0: [], 1: [(7, "a"), (8, "b")]}
    history.log_starts = {1: 7, 5: 1}
    history.transactions.final = {P: [(4, "f"), (5, "g")]}
    history.transactions.source = {0: ["0:0", "0:1"]}
    history.keyed.final = {0: [Record(5, "k", None)]}
    history.schemas.last_ids = {".": 2}
    history.connect.final = {("t", 0): [(7, "c/0:7")]}
    for number, name in enumerate(FACTS, 1):
        owner, _, last = name.rpartition(".")
        values: dict[str, Any] = {"copies_to": "copies", "is_drained": number % 2 == 0}
        setattr(attrgetter(owner)(history) if owner else history, last, values.get(last, number))
    for name in COMPLAINTS:
        attrgetter(name)(history).extend([f"{name} 1", f"{name} 2"])
    return history


def test_a_history_of_every_kind_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    history = full_history()
    dump(history, tmp_path / "history.jsonl")

    assert load(tmp_path / "history.jsonl") == history
    assert history_of(operations(history)) == history
    assert history_from(entries(history)) == history


def test_the_full_history_uses_every_kind_and_every_field_of_a_history() -> None:
    history = full_history()

    assert {entry.kind.op for entry in entries(history)} == {kind.op for kind in KINDS}
    assert all(attrgetter(path)(history) is not None for path in paths_of(History()))
    covered = {kind.at for kind in KINDS if kind.at} | FACTS.keys() | set(COMPLAINTS)
    assert covered == set(paths_of(History()))


def test_every_field_of_a_record_is_in_its_kind() -> None:
    for kind in KINDS:
        fields = {each.name for each in dataclasses.fields(kind.type)}
        named = {kind.client, kind.start, kind.end, *kind.args, *kind.results}
        assert fields <= named, kind.op
        assert set(kind.results) <= fields, kind.op


def test_operations_are_flat_and_name_their_outcome() -> None:
    lines = [json.loads(encode(operation_of(record))) for record in RECORDS[:3]]

    assert lines[0] == {
        "client": 0,
        "op": "produce",
        "start": 1.0,
        "end": 2.0,
        "outcome": "ok",
        "args": {"partition": 1, "values": ["a", "b"]},
        "result": {"base": 7},
    }
    assert [(line["outcome"], line["result"]) for line in lines[1:]] == [
        ("unknown", None),
        ("failed", None),
    ]


def test_operations_are_ordered_by_time() -> None:
    ends = [each.end for each in operations(full_history()) if each.end is not None]

    assert ends == sorted(ends)


TIMES = st.floats(0, 1e6)
OFFSETS = st.integers(0, 2**62)


@given(st.lists(st.builds(Produced, began_s=TIMES, ended_s=TIMES | st.just(float("inf")))))
def test_any_calls_are_read_back_as_they_were_written(produced: list[Produced]) -> None:
    history = History(produced=produced)

    assert history_of(operations(history)) == history


@given(
    st.lists(st.builds(Fetched, began_s=TIMES, ended_s=TIMES | st.just(float("inf")))),
    st.dictionaries(st.integers(), st.lists(st.tuples(OFFSETS, st.text()))),
    st.lists(st.builds(Seen, at_s=TIMES, offsets=st.dictionaries(st.integers(), OFFSETS))),
)
def test_any_reads_are_read_back_as_they_were_written(
    fetched: list[Fetched], final: dict[int, list[tuple[int, str]]], seen: list[Seen]
) -> None:
    history = History(fetched=fetched, final=final)
    history.group.seen = seen

    assert history_of(operations(history)) == history


def test_histories_of_several_clients_are_merged_in_the_order_of_time() -> None:
    one, other = History(batches=2), History(batches=3, stuck=["a"])
    one.produced = [Produced(0, 0, ("a",), 0, 1, 0, False), Produced(0, 0, ("c",), 4, 5, 2, False)]
    other.produced = [Produced(1, 0, ("b",), 2, 3, 1, False)]
    other.final = {0: [(0, "a")]}
    one.group.session_s, other.group.is_drained, one.group.is_drained = 6.0, True, False

    both = merge([one, other])

    assert [call.values for call in both.produced] == [("a",), ("b",), ("c",)]
    assert (both.batches, both.stuck, both.final) == (5, ["a"], other.final)
    assert (both.group.session_s, both.group.is_drained) == (6.0, False)
    assert merge([other, one]).produced == both.produced
    assert merge([full_history()]) == full_history()
    assert merge([]) == History()


def test_a_merge_keeps_the_order_of_each_clients_records() -> None:
    one, other = History(), History()
    one.group.seen = [Seen(5, {0: 2}), Seen(3, {0: 1})]
    other.group.seen = [Seen(4, {0: 7})]

    assert [s for s in merge([one, other]).group.seen if s.at_s != 4] == one.group.seen


def test_contradicting_histories_are_not_merged() -> None:
    one, other = History(final={0: [(0, "a")]}), History(final={0: [(0, "b")]})
    with pytest.raises(MalformedHistory, match="read_back of 0 is there twice"):
        merge([one, other])
    one, other = History(), History()
    one.group.session_s, other.group.session_s = 2.0, 6.0
    with pytest.raises(MalformedHistory, match=r"\[2.0, 6.0\]"):
        merge([one, other])


PRODUCE: dict[str, Any] = json.loads(encode(operation_of(RECORDS[0])))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ({"op": "produce"}, "missing required field `client`"),
        (PRODUCE | {"also": 1}, "unknown field `also`"),
        (PRODUCE | {"op": "sing"}, "there is no op 'sing'"),
        (PRODUCE | {"outcome": "fine"}, "Invalid enum value 'fine'"),
        (PRODUCE | {"start": None}, r"Expected `float`, got `null` - at `\$.began_s`"),
        (PRODUCE | {"args": {"partition": 1}}, r"produce that is ok lacks \['values'\]"),
        (PRODUCE | {"args": {"part": 1}}, r"args of produce: \['part'\] are none of"),
        (PRODUCE | {"result": {"offset": 1}}, r"result of produce: \['offset'\] are none of"),
        (PRODUCE | {"result": None}, r"produce that is ok lacks \['base'\]"),
        (PRODUCE | {"result": {"base": None}}, "called ok, but its result is failed"),
        (PRODUCE | {"outcome": "unknown"}, "called unknown, but its result is ok"),
        (PRODUCE | {"args": {"partition": "x", "values": []}}, r"at `\$.partition`"),
        (PRODUCE | {"op": "fact", "args": {"name": "x"}, "result": {"value": 1}}, "no fact 'x'"),
    ],
)
def test_a_malformed_line_is_reported_with_its_number_and_problem(
    tmp_path: Path, line: Any, problem: str
) -> None:
    path = tmp_path / "history.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(json.dumps(PRODUCE) + "\n\n" + text + "\n")

    with pytest.raises(MalformedHistory, match=problem) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}:3: ")
