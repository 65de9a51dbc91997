"""Where a source is, and why each change comes once: pure.

**The slot comes first, then the snapshot.** A slot gives every transaction that commits after it
was made. A snapshot that is taken later (REPEATABLE READ) sees every transaction that committed
before, since making a slot waits for all that were running. So no transaction is in neither. Those
in both are known: PostgreSQL says which transactions a snapshot sees (`pg_current_snapshot`, the
same one that the transaction reads with), and a change of one of them is dropped when the slot
gives it. Only transactions whose commit is in the log before the snapshot's end can be among them,
so the snapshot is forgotten when the slot is beyond that.

**A snapshot goes on where it was interrupted.** Tables are read by name, rows by key, and the
position says how far. The next run has another snapshot, for the rows that follow. A row belongs to
the snapshot that covers its key, whether the row was there or not, and a change of the row is
dropped if that snapshot sees it. A change of key is two changes, of two rows. So each row is read
once, and what comes after the snapshot that read it follows, once. A table whose keys do not order
here as they do in PostgreSQL (no key, or others than whole numbers, UUIDs and text) is read again
from its beginning: rows come again, and changes since the first snapshot follow, so the last record
of each key is right.

**The stream's position is a transaction, a change in it, and a record of the change.** pgoutput
gives transactions in the order of their commits. What is at or before the position is skipped, so a
slot may be read again from anywhere before it, and a large transaction over many polls.

    {"lsn": commit, "change": n, "part": k, "previous": end of the one before,
     "snapshots": [[snapshot, until], …], "snapshot_end": lsn}            while streaming
    {"at": [schema, table, key], "snapshots": [… [this snapshot, null]], "snapshot_end": lsn}

`until` is a place like `at`, the last that its snapshot covers; null: all that follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.connect.data.errors import TaskFault

SNAPSHOTS_MAX: Final = 200
"""Runs of one snapshot: the position of each record names them all."""

_XIDS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """Which transactions a snapshot sees: `xmin:xmax:those that run`, 64 bits each."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parsed(cls, text: str) -> "PgSnapshot":
        try:
            xmin, xmax, running = text.split(":")
            return cls(
                int(xmin), int(xmax), frozenset(map(int, running.split(",") if running else ()))
            )
        except ValueError:
            raise TaskFault(f"{text!r} is no snapshot of PostgreSQL: delete the offsets") from None

    def sees(self, xid: int) -> bool:
        """Whether it sees a committed transaction, given 32 bits of its id."""
        full = self.xmax + ((xid - self.xmax + _XIDS // 2) % _XIDS - _XIDS // 2)
        return full < self.xmin or (full < self.xmax and full not in self.running)


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A row in the order of snapshots; `key` None: any row of the table, and behind all of them."""

    schema: str
    table: str
    key: tuple[Any, ...] | None

    def covers(self, schema: str, table: str, key: tuple[Any, ...] | None) -> bool:
        """Whether a row is at or before this place. The key of a row may be unknown."""
        if (schema, table) != (self.schema, self.table):
            return (schema, table) < (self.schema, self.table)
        if self.key is None or key is None:
            return True
        return key <= self.key

    def stored(self) -> list[Any]:
        return [self.schema, self.table, None if self.key is None else list(self.key)]

    @classmethod
    def read(cls, stored: Sequence[Any]) -> "RowPlace":
        schema, table, key = stored
        return cls(schema, table, None if key is None else tuple(key))


@dataclass(frozen=True, slots=True)
class Covered:
    """Snapshots that were read, in order, and the last place that each covers."""

    snapshots: tuple[tuple[PgSnapshot, RowPlace | None], ...] = ()
    texts: tuple[str, ...] = ()
    end_lsn: int = 0
    """All that they see has committed before it."""

    def has_seen(
        self, lsn: int, xid: int, schema: str, table: str, key: tuple[Any, ...] | None
    ) -> bool:
        """Whether a change of a row is in what the snapshot read of it."""
        if lsn >= self.end_lsn:
            return False
        for snapshot, until in self.snapshots:
            if until is None or until.covers(schema, table, key):
                return snapshot.sees(xid)
        return False

    def begun(self, snapshot: str, end_lsn: int, at: RowPlace | None) -> "Covered":
        """Return it with another snapshot, for all that follows `at`."""
        kept = self.snapshots
        texts = self.texts
        if kept:
            assert kept[-1][1] is None, kept
            if at is None:
                kept, texts = kept[:-1], texts[:-1]
            else:
                kept = (*kept[:-1], (kept[-1][0], at))
        if len(kept) >= SNAPSHOTS_MAX:
            raise TaskFault(
                f"the snapshot was interrupted {SNAPSHOTS_MAX} times: run the connector in a "
                "container until it is done, or delete its offsets and choose fewer tables"
            )
        return Covered(
            (*kept, (PgSnapshot.parsed(snapshot), None)),
            (*texts, snapshot),
            max(end_lsn, self.end_lsn),
        )

    def stored(self) -> dict[str, Any]:
        if not self.snapshots:
            return {}
        pairs = [
            [text, None if until is None else until.stored()]
            for text, (_, until) in zip(self.texts, self.snapshots, strict=True)
        ]
        return {"snapshots": pairs, "snapshot_end": self.end_lsn}

    @classmethod
    def read(cls, offset: Mapping[str, Any]) -> "Covered":
        pairs = offset.get("snapshots") or ()
        return cls(
            tuple(
                (PgSnapshot.parsed(t), None if u is None else RowPlace.read(u)) for t, u in pairs
            ),
            tuple(text for text, _ in pairs),
            offset.get("snapshot_end", 0),
        )


@dataclass(frozen=True, slots=True)
class StreamPosition:
    lsn: int = 0
    """Of the commit of the last transaction that a record came from."""
    change: int = 0
    part: int = 0
    previous: int = 0
    """The end of the transaction before it."""

    def skips(self, lsn: int, change: int, part: int) -> bool:
        return (lsn, change, part) <= (self.lsn, self.change, self.part)


@dataclass(frozen=True, slots=True)
class Start:
    """What a stored offset says: how to go on."""

    covered: Covered
    stream: StreamPosition
    at: RowPlace | None = None
    in_snapshot: bool = False


def start_of(offset: Mapping[str, Any]) -> Start:
    """Return how to go on after `offset`, or raise `TaskFault` if it is none of ours."""
    try:
        covered = Covered.read(offset)
        if "at" in offset:
            return Start(covered, StreamPosition(), RowPlace.read(offset["at"]), True)
        return Start(
            covered,
            StreamPosition(
                int(offset["lsn"]),
                int(offset["change"]),
                int(offset["part"]),
                int(offset["previous"]),
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TaskFault(
            f"the offset {dict(offset)} was not made by this connector: {error!r}"
        ) from None
