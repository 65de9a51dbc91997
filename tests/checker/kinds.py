"""Every kind of operation: its record type, its place in a history, and its fields.

Typed records and flat operations hold the same data. A kind names the fields of a record that are
its client, its start and its end; of the others some are results, the rest are arguments. An
outcome may imply results (a failed call has no offset), which are then not written. Entries that
are not calls have small record types here: a partition as it was read in the end, a fact about the
whole run, a complaint in words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from tests.checker import idempotent_rules, transaction_rules
from tests.checker.connect_history import (
    ConnectPlace,
    PositionChange,
    RunCommit,
    StateCall,
    StoredConnector,
    Taken,
    TaskChange,
)
from tests.checker.door_rules import ReadContent, SentContent
from tests.checker.facts import COMPLAINTS, FACTS, Complaint, Fact
from tests.checker.group_rules import Assigned, Committing, Delivered, Read, Seen
from tests.checker.history import History
from tests.checker.idempotent_rules import Sent
from tests.checker.keyed_rules import Look, Record, Written
from tests.checker.log_rules import Fetched, Produced
from tests.checker.schema_history import (
    DONE,
    Deleting,
    LastId,
    Registering,
    SchemaLook,
    StoredSchema,
    StoredSubject,
    SubjectChange,
)
from tests.checker.transaction_rules import Attempt, Ending, Instance, Moment, Place, Shown

Outcome = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True)
class LogRead:
    """The final state of a partition of the log."""

    partition: int
    records: list[tuple[int, str]]


@dataclass(frozen=True)
class LogStart:
    partition: int
    offset: int


@dataclass(frozen=True)
class SourceRead:
    """The records of a source partition that copiers had to copy."""

    partition: int
    values: list[str]


@dataclass(frozen=True)
class PlaceRead:
    """The final state of a partition that transactions write to."""

    place: Place
    records: list[tuple[int, str]]


@dataclass(frozen=True)
class KeyedRead:
    """The final state of a compacted partition."""

    partition: int
    records: list[Record]


@dataclass(frozen=True)
class ConnectRead:
    """The final state of a partition that connectors write to."""

    place: ConnectPlace
    records: list[tuple[int, str]]


def _always_ok(_: Any) -> Outcome:
    return "ok"


def _always_failed(_: Any) -> Outcome:
    return "failed"


def _of_write(record: Any) -> Outcome:
    if (record.base if isinstance(record, Produced) else record.offset) is not None:
        return "ok"
    return "unknown" if record.may_have_applied else "failed"


def _of_commit(record: Any) -> Outcome:
    return "ok" if record.acked else "unknown"


def _of_sent(record: Any) -> Outcome:
    if record.answer == idempotent_rules.UNKNOWN:
        return "unknown"
    is_written = record.answer in {idempotent_rules.ACKED, idempotent_rules.DUPLICATE}
    return "ok" if is_written else "failed"


def _of_ending(record: Any) -> Outcome:
    if record.answer == transaction_rules.UNKNOWN:
        return "unknown"
    has_ended = {transaction_rules.COMMITTED, transaction_rules.ABORTED}
    return "ok" if record.answer in has_ended else "failed"


def _of_code(record: Any) -> Outcome:
    if record.code is None:
        return "unknown"
    return "ok" if record.code == DONE else "failed"


@dataclass(frozen=True, kw_only=True)
class Kind:
    op: str
    type: type
    at: str = ""
    """The list or mapping of a history that holds its records."""
    client: str = ""
    times: tuple[str, str] = ("", "")
    """The fields that are its start and its end, if any."""
    results: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Fields of which a smaller history may omit items."""
    outcome_of: Callable[[Any], Outcome] = _always_ok
    implied: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.type)
        taken = {self.client, *self.times, *self.results}
        names = [each.name for each in fields(self.type)]
        derived = {
            "names": names,
            "args": tuple(name for name in names if name not in taken),
            "by_place": frozenset(name for name in names if _is_by_place(hints[name])),
            "required": {
                each.name
                for each in fields(self.type)
                if each.default is MISSING and each.default_factory is MISSING
            },
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    names: list[str] = field(init=False)
    args: tuple[str, ...] = field(init=False)
    by_place: frozenset[str] = field(init=False)
    """Mappings whose keys are not valid in JSON: they are written as pairs."""
    required: set[str] = field(init=False)

    @property
    def start(self) -> str:
        return self.times[0]

    @property
    def end(self) -> str:
        return self.times[1]

    def of(self, history: History) -> Iterator[Any]:
        """Yield all records of this kind, in their order."""
        if self.type is Fact:
            usual = History()
            for name in FACTS:
                value = attrgetter(name)(history)
                if value != attrgetter(name)(usual):
                    yield Fact(name, value)
        elif self.type is Complaint:
            for name in COMPLAINTS:
                yield from (Complaint(name, text) for text in attrgetter(name)(history))
        else:
            there = attrgetter(self.at)(history)
            yield from (
                (self.type(*item) for item in there.items()) if isinstance(there, dict) else there
            )

    def put(self, history: History, record: Any) -> None:
        """Add a record to `history`. Raises `ValueError` if its place is taken."""
        if self.type is Fact:
            if record.name not in FACTS:
                raise ValueError(f"there is no fact {record.name!r}")
            owner, _, name = record.name.rpartition(".")
            setattr(attrgetter(owner)(history) if owner else history, name, record.value)
        elif self.type is Complaint:
            if record.about not in COMPLAINTS:
                raise ValueError(f"there are no complaints about {record.about!r}")
            attrgetter(record.about)(history).append(record.text)
        else:
            there = attrgetter(self.at)(history)
            if isinstance(there, dict):
                key, value = (getattr(record, name) for name in self.names)
                if there.setdefault(key, value) != value:
                    raise ValueError(f"{self.op} of {key} is there twice, and differs")
            else:
                there.append(record)


def _is_by_place(hint: Any) -> bool:
    if get_origin(hint) in {Union, UnionType}:
        return any(_is_by_place(each) for each in get_args(hint))
    is_mapping = get_origin(hint) in {dict, Mapping}
    return is_mapping and get_origin(get_args(hint)[0]) is tuple


_WRITE: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    place: {
        "ok": {"may_have_applied": False},
        "failed": {place: None, "may_have_applied": False},
        "unknown": {place: None, "may_have_applied": True},
    }
    for place in ("base", "offset")
}

_CODES: Final[Mapping[str, Mapping[str, Any]]] = {"ok": {"code": DONE}, "unknown": {"code": None}}

BEGAN_ENDED: Final = ("began_s", "ended_s")
BEGAN_AT: Final = ("began_s", "at_s")
AT: Final = ("at_s", "at_s")
BEGAN: Final = ("began_s", "")

_RECORDS: Final[Mapping[str, Any]] = {"results": ("records",), "parts": ("records",)}

KINDS: Final = (
    Kind(op="fact", type=Fact, results=("value",)),
    Kind(
        op="produce",
        type=Produced,
        at="produced",
        client="client",
        results=("base", "may_have_applied"),
        outcome_of=_of_write,
        implied=_WRITE["base"],
        times=BEGAN_ENDED,
    ),
    Kind(
        op="fetch",
        type=Fetched,
        at="fetched",
        client="client",
        results=("values", "next_offset", "high_watermark", "log_start"),
        parts=("values",),
        times=BEGAN_ENDED,
    ),
    Kind(
        op="hear_assignment",
        type=Assigned,
        at="group.told",
        client="name",
        results=("generation", "assignment"),
        parts=("assignment",),
        times=BEGAN_AT,
    ),
    Kind(op="own", type=Read, at="group.reads", client="name", times=BEGAN_ENDED),
    Kind(
        op="poll",
        type=Delivered,
        at="group.delivered",
        client="name",
        results=("offsets",),
        times=BEGAN_AT,
    ),
    Kind(
        op="commit",
        type=Committing,
        at="group.commits",
        client="name",
        times=BEGAN_ENDED,
        results=("acked",),
        outcome_of=_of_commit,
        implied={"ok": {"acked": True}, "unknown": {"acked": False}},
    ),
    Kind(
        op="see_commits",
        type=Seen,
        at="group.seen",
        results=("offsets",),
        parts=("offsets",),
        times=BEGAN_AT,
    ),
    Kind(
        op="send",
        type=Sent,
        at="idempotent.sent",
        client="producer",
        results=("answer", "base"),
        outcome_of=_of_sent,
        implied={"unknown": {"answer": idempotent_rules.UNKNOWN, "base": None}},
        times=BEGAN_ENDED,
    ),
    Kind(op="begin", type=Attempt, at="transactions.attempts", client="name"),
    Kind(
        op="end",
        type=Ending,
        at="transactions.endings",
        client="name",
        results=("answer", "next_epoch", "bases"),
        outcome_of=_of_ending,
        implied={
            "unknown": {"answer": transaction_rules.UNKNOWN, "next_epoch": None, "bases": None}
        },
        times=BEGAN_ENDED,
    ),
    Kind(
        op="start_instance",
        type=Instance,
        at="transactions.instances",
        client="transactional_id",
        results=("producer_id", "epoch"),
        times=BEGAN_AT,
    ),
    Kind(
        op="read",
        type=Shown,
        at="transactions.shown",
        results=("values", "end", "is_end_of_now"),
        parts=("values",),
        times=BEGAN_ENDED,
    ),
    Kind(
        op="see_table",
        type=Moment,
        at="transactions.moments",
        results=("copied", "written"),
        times=AT,
    ),
    Kind(
        op="write_key",
        type=Written,
        at="keyed.written",
        results=("offset", "may_have_applied"),
        outcome_of=_of_write,
        implied=_WRITE["offset"],
        times=BEGAN_ENDED,
    ),
    Kind(
        op="fetch_keys",
        type=Look,
        at="keyed.looks",
        times=BEGAN,
        results=("records", "next_offset"),
        parts=("records",),
    ),
    Kind(
        op="register_schema",
        type=Registering,
        at="schemas.registered",
        client="client",
        results=("code", "schema_id", "version"),
        outcome_of=_of_code,
        implied=_CODES,
        times=BEGAN_ENDED,
    ),
    Kind(
        op="delete_schema",
        type=Deleting,
        at="schemas.deleted",
        client="client",
        results=("code", "gone"),
        outcome_of=_of_code,
        implied=_CODES,
        times=BEGAN_ENDED,
    ),
    Kind(
        op="look_up_schema",
        type=SchemaLook,
        at="schemas.looks",
        client="client",
        results=("code", "schema", "schema_id", "version", "listed"),
        parts=("listed",),
        outcome_of=_of_code,
        implied=_CODES,
        times=BEGAN_ENDED,
    ),
    Kind(
        op="change_subject",
        type=SubjectChange,
        at="schemas.changes",
        results=("was", "became", "level", "mode", "references"),
        parts=("references",),
        times=AT,
    ),
    Kind(
        op="commit_run",
        type=RunCommit,
        at="connect.commits",
        client="run",
        results=("code", "token"),
        outcome_of=_of_code,
        implied=_CODES,
        times=BEGAN_ENDED,
    ),
    Kind(
        op="change_task",
        type=TaskChange,
        at="connect.changes",
        results=("token", "epoch"),
        times=AT,
    ),
    Kind(
        op="move_position",
        type=PositionChange,
        at="connect.positions",
        results=("number",),
        times=AT,
    ),
    Kind(
        op="call_connector",
        type=StateCall,
        at="connect.calls",
        client="client",
        results=("code",),
        outcome_of=_of_code,
        implied=_CODES,
        times=BEGAN_ENDED,
    ),
    Kind(op="take", type=Taken, at="connect.taken", client="connector", times=AT),
    Kind(op="log_start", type=LogStart, at="log_starts", results=("offset",)),
    Kind(op="read_back", type=LogRead, at="final", **_RECORDS),
    Kind(
        op="read_back_source",
        type=SourceRead,
        at="transactions.source",
        results=("values",),
        parts=("values",),
    ),
    Kind(op="read_back_place", type=PlaceRead, at="transactions.final", **_RECORDS),
    Kind(op="read_back_keys", type=KeyedRead, at="keyed.final", **_RECORDS),
    Kind(
        op="read_back_schema",
        type=StoredSchema,
        at="schemas.schemas",
        results=("schema", "digest_id", "guid_id", "users", "refers"),
    ),
    Kind(
        op="read_back_subject",
        type=StoredSubject,
        at="schemas.subjects",
        results=("versions", "referrers"),
        parts=("versions",),
    ),
    Kind(op="read_back_connect", type=ConnectRead, at="connect.final", **_RECORDS),
    Kind(
        op="read_back_connector",
        type=StoredConnector,
        at="connect.connectors",
        results=("target", "counts", "topic", "committed"),
    ),
    Kind(op="read_back_last_id", type=LastId, at="schemas.last_ids", results=("number",)),
    Kind(op="send_content", type=SentContent, at="doors.sent"),
    Kind(
        op="read_content",
        type=ReadContent,
        at="doors.read",
        client="door",
        results=("value", "content"),
    ),
    Kind(op="complain", type=Complaint, results=("text",), outcome_of=_always_failed),
)

KIND_OF: Final = {kind.type: kind for kind in KINDS}
KIND_NAMED: Final = {kind.op: kind for kind in KINDS}
