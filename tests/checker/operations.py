"""Histories as flat operations: JSON lines that any process can write.

    {"client": 3, "op": "produce", "start": 1.5, "end": 1.6, "outcome": "ok",
     "args": {"partition": 0, "values": ["a"]}, "result": {"base": 7}}

`tests/checker/kinds.py` has every `op`. An outcome is `ok`, `failed` (it did not happen) or
`unknown` (it may have happened, or may still happen). `start` and `end` are seconds of one clock
that all clients share; null is a time that is not known. `dump` and `load` lose nothing.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.checker.facts import FACTS
from tests.checker.history import History
from tests.checker.kinds import KIND_NAMED, KIND_OF, KINDS, Kind, Outcome


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client did, when, and what became of it."""

    client: int | str | None
    op: str
    start: float | None
    end: float | None
    outcome: Outcome
    args: dict[str, Any]
    result: dict[str, Any] | None


class MalformedHistory(ValueError):
    """A file is not a history. The message says where, and what is wrong."""


class Entry(NamedTuple):
    """One record of a history, together with its kind."""

    kind: Kind
    record: Any

    def at_s(self) -> float:
        """When it ended; when it began if the end is not known."""
        for name in (self.kind.end, self.kind.start):
            at_s = getattr(self.record, name) if name else None
            if at_s is not None and math.isfinite(at_s):
                return float(at_s)
        return -math.inf


def entries(history: History) -> list[Entry]:
    """Return all entries: facts, then operations in the order of time, then final reads."""
    timed = [kind for kind in KINDS if kind.start]
    first, last = KINDS[: KINDS.index(timed[0])], KINDS[KINDS.index(timed[-1]) + 1 :]
    between = [kind for kind in KINDS if kind not in first and kind not in last]
    merged = heapq.merge(*(_of(kind, history) for kind in between), key=Entry.at_s)
    return [*_of_all(first, history), *merged, *_of_all(last, history)]


def history_from(found: Iterable[Entry]) -> History:
    history = History()
    for kind, record in found:
        kind.put(history, record)
    return history


def operations(history: History) -> list[Operation]:
    return [operation_of(record) for _, record in entries(history)]


def history_of(operations: Iterable[Operation]) -> History:
    """Return the history of these operations. Raises `MalformedHistory`."""
    return _gathered((f"operation {number}", each) for number, each in enumerate(operations, 1))


def operation_of(record: Any) -> Operation:
    """Return a typed record as an operation."""
    kind = KIND_OF[type(record)]
    outcome = kind.outcome_of(record)
    implied = kind.implied.get(outcome, {})
    said = {name: getattr(record, name) for name in kind.results}
    result = {
        name: _plain(kind, name, value)
        for name, value in said.items()
        if name not in implied or implied[name] != value
    }
    return Operation(
        client=getattr(record, kind.client) if kind.client else None,
        op=kind.op,
        start=_moment(record, kind.start),
        end=_moment(record, kind.end),
        outcome=outcome,
        args={name: _plain(kind, name, getattr(record, name)) for name in kind.args},
        result=result or None,
    )


def record_of(operation: Operation) -> Any:
    """Return the typed record of an operation. Raises `MalformedHistory`."""
    kind = KIND_NAMED.get(operation.op)
    if kind is None:
        raise MalformedHistory(f"there is no op {operation.op!r}")
    result = operation.result or {}
    _refuse_others(f"args of {kind.op}", operation.args, kind.args)
    _refuse_others(f"result of {kind.op}", result, kind.results)
    given = {**operation.args, **kind.implied.get(operation.outcome, {}), **result}
    taken = {kind.client: operation.client, kind.end: operation.end, kind.start: operation.start}
    for name in taken.keys() & set(kind.names):
        if taken[name] is not None or name in kind.required:
            given[name] = math.inf if taken[name] is None and name == kind.end else taken[name]
    if missing := kind.required - given.keys():
        raise MalformedHistory(f"{kind.op} that is {operation.outcome} lacks {sorted(missing)}")
    try:
        for name in kind.by_place & given.keys():
            given[name] = _by_place(given[name])
        record: Any = msgspec.convert(given, kind.type, str_keys=True, dec_hook=_typed)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise MalformedHistory(f"{kind.op}: {error}") from None
    if kind.outcome_of(record) != operation.outcome:
        meant = kind.outcome_of(record)
        raise MalformedHistory(
            f"{kind.op} is called {operation.outcome}, but its result is {meant}"
        )
    return record


def encode(operation: Operation) -> bytes:
    """Return an operation as a line, with its newline."""
    return msgspec.json.encode(operation) + b"\n"


def dump(history: History, path: str | Path) -> None:
    with Path(path).open("wb") as file:
        file.writelines(map(encode, operations(history)))


def load(path: str | Path) -> History:
    """Return the history that `dump` or any clients wrote. Raises `MalformedHistory`."""
    with Path(path).open("rb") as file:
        return _gathered(_lines(str(path), file))


def merge(histories: Sequence[History]) -> History:
    """Merge the histories of several clients. Raises `MalformedHistory` if they contradict.

    They must share a clock and have different names. The operations of each keep their order.
    """
    merged = heapq.merge(*map(_without_facts, histories), key=Entry.at_s)
    try:
        history = history_from(merged)
        for name, one_of in FACTS.items():
            owner, _, last = name.rpartition(".")
            value = one_of([attrgetter(name)(each) for each in histories or [History()]])
            setattr(attrgetter(owner)(history) if owner else history, last, value)
    except ValueError as error:
        raise MalformedHistory(str(error)) from None
    return history


def _of(kind: Kind, history: History) -> Iterator[Entry]:
    return (Entry(kind, record) for record in kind.of(history))


def _of_all(kinds: Iterable[Kind], history: History) -> Iterator[Entry]:
    for kind in kinds:
        yield from _of(kind, history)


def _without_facts(history: History) -> list[Entry]:
    return [entry for entry in entries(history) if entry.kind.op != "fact"]


def _lines(path: str, lines: Iterable[bytes]) -> Iterator[tuple[str, Operation]]:
    decoder = msgspec.json.Decoder(Operation)
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield f"{path}:{number}", decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise MalformedHistory(f"{path}:{number}: {error}") from None


def _gathered(found: Iterable[tuple[str, Operation]]) -> History:
    history = History()
    for where, operation in found:
        try:
            KIND_NAMED.get(operation.op, KINDS[0]).put(history, record_of(operation))
        except ValueError as error:
            raise MalformedHistory(f"{where}: {error}") from None
    return history


def _refuse_others(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    if others := set(given) - set(known):
        raise MalformedHistory(f"{where}: {sorted(others)} are none of {list(known)}")


def _moment(record: Any, name: str) -> float | None:
    """Return the time, or null if it is not known or infinite, which JSON cannot express."""
    if not name:
        return None
    at_s = getattr(record, name)
    return float(at_s) if at_s is not None and math.isfinite(at_s) else None


def _plain(kind: Kind, name: str, value: Any) -> Any:
    if name in kind.by_place and isinstance(value, Mapping):
        value = list(value.items())
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_untyped)


def _by_place(pairs: Any) -> Any:
    if pairs is None or isinstance(pairs, Mapping):
        return pairs
    return {tuple(place): value for place, value in pairs}


def _untyped(value: Any) -> Any:
    if isinstance(value, range):
        return [value.start, value.stop]
    raise NotImplementedError(type(value))


def _typed(kind: type, value: Any) -> Any:
    if kind is range:
        start, stop = value
        return range(start, stop)
    raise NotImplementedError(kind)
