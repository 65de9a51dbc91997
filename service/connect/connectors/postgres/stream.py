"""Changes as records: one transaction of the log after the other, each change once.

A peek gives whole transactions, which the server decodes and holds; they are fetched in pieces of
bounded size, over as many polls as it takes. What the position or the snapshots have already is
skipped.
"""

from collections.abc import Mapping
from typing import Any, Final

from service.connect.connectors.api import Position, Reporter
from service.connect.connectors.postgres import server, tables
from service.connect.connectors.postgres.envelope import (
    Moment,
    StaleShape,
    TableShape,
    TableShapes,
    change,
    other_key,
    tombstone,
)
from service.connect.connectors.postgres.pgoutput import (
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    RelationMessage,
    Row,
    TruncateMessage,
    UpdateMessage,
    decode,
)
from service.connect.connectors.postgres.position import Covered, StreamPosition
from service.connect.connectors.postgres.settings import PostgresSettings
from service.connect.data.errors import DataFault, TaskFault
from service.connect.data.records import ConnectRecord, FromSource
from service.world.clock import World

PEEK_CHANGES_MAX: Final = 20_000
"""A peek ends with the transaction in which it has so many."""

FETCH_BYTES: Final = 16 << 20
"""About so much of a peek is fetched at a time, and one message at least."""

SHAPE_S_MAX: Final = 60.0
"""After so long the catalog is asked again about a table that the log describes as before."""

STALE_MAX: Final = 1_600
"""Columns of a table, of which each may prove to be optional."""

_PEEK: Final = """
SELECT lsn, data FROM pg_logical_slot_peek_binary_changes($1, $2::pg_lsn, $3,
    'proto_version', '1', 'publication_names', $4)
"""
_CHANGES: Final = frozenset(b"IUDT")


class ChangeStream:
    def __init__(
        self,
        settings: PostgresSettings,
        partition: Position,
        covered: Covered,
        position: StreamPosition,
        world: World,
        report: Reporter,
    ) -> None:
        self.drained_lsn = 0
        """All that committed before has been given."""
        self._settings = settings
        self._partition = partition
        self._covered = covered
        self._covered_stored = covered.stored()
        self._position = position
        self._world = world
        self._report = report
        self._connection: Any = None
        self._transaction: Any = None
        self._cursor: Any = None
        self._peeked = 0
        self._peek_end = 0
        self._message_bytes = 1_000.0
        self._begin: BeginMessage | None = None
        self._moment: Moment | None = None
        self._change = 0
        self._previous = 0
        self._relations: dict[int, tuple[RelationMessage, float]] = {}
        self._shapes: dict[int, TableShape | None] = {}
        self._optional: dict[int, set[str]] = {}

    async def start(self, connection: Any, confirmed: int) -> None:
        self._connection = connection
        self._previous = confirmed if self._position.lsn else 0
        with server.faults("reading types"):
            self._makes = TableShapes(self._settings, await tables.types(connection))

    @property
    def is_open(self) -> bool:
        """Whether more of the last peek is to come."""
        return self._cursor is not None

    async def poll(self, flushed: int, records_max: int) -> list[ConnectRecord]:
        """Return the next records, of what had reached the server's disk at `flushed`.

        After an error nothing was returned: the next poll peeks again, by a new connection.
        """
        position, drained_lsn = self._position, self.drained_lsn
        try:
            return await self._records_of(flushed, records_max)
        except BaseException:
            # What was made is lost with it, so neither may count as given.
            self._position, self.drained_lsn = position, drained_lsn
            self._cursor = None
            raise

    async def _records_of(self, flushed: int, records_max: int) -> list[ConnectRecord]:
        with server.faults(f"reading the slot {self._settings.slot!r}"):
            if self._cursor is None:
                await self._peek(flushed)
            limit = max(1, min(records_max, int(FETCH_BYTES / self._message_bytes)))
            rows = await self._cursor.fetch(limit)
            self._peeked += len(rows)
            out: list[ConnectRecord] = []
            for lsn, data in rows:
                if data[0] in _CHANGES:
                    try:
                        self._changed(lsn, data, out)
                    except (StaleShape, DataFault) as error:
                        await self._mend(error, lsn, data, out)
                else:
                    await self._message(data)
            if len(rows) < limit:
                await self._drained()
            elif rows:
                size = sum(len(row["data"]) for row in rows)
                self._message_bytes = max(1.0, size / len(rows))
        return out

    async def _peek(self, flushed: int) -> None:
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        self._peeked = 0
        self._peek_end = flushed
        self._begin = None
        self._cursor = await self._connection.cursor(
            _PEEK,
            self._settings.slot,
            flushed,
            PEEK_CHANGES_MAX,
            '"' + self._settings.publication + '"',
        )

    async def _drained(self) -> None:
        self._cursor = None
        await self._transaction.rollback()
        if self._begin is not None:
            raise TaskFault("the server's changes ended inside a transaction")
        if self._peeked < PEEK_CHANGES_MAX:
            # No limit ended the peek, so it went as far as the log did.
            self.drained_lsn = max(self.drained_lsn, self._peek_end)

    async def _message(self, data: bytes) -> None:
        message = decode(data)
        match message:
            case BeginMessage():
                self._begin = message
                self._change = 0
                self._moment = Moment(
                    name=self._settings.prefix,
                    database=self._settings.database,
                    commit_us=message.commit_us,
                    xid=message.xid,
                    previous=self._previous,
                )
            case CommitMessage():
                self._begin = None
                self._previous = message.end_lsn
                self.drained_lsn = max(self.drained_lsn, message.end_lsn)
            case RelationMessage():
                await self._described(message)

    async def _described(self, relation: RelationMessage) -> None:
        now_s = self._world.monotonic_s()
        known = self._relations.get(relation.oid)
        if known is not None and known[0] == relation and now_s - known[1] < SHAPE_S_MAX:
            return
        shape = None
        if self._settings.filters.has_table(relation.schema, relation.name):
            if any(not self._makes.knows(each.type_oid) for each in relation.columns):
                self._makes = TableShapes(self._settings, await tables.types(self._connection))
            table = await tables.table(
                self._connection, relation.oid, relation.schema, relation.name
            )
            shape = self._makes.of(table, relation, self._optional.get(relation.oid, set()))
        # Both at once, after all that may be cancelled.
        self._shapes[relation.oid] = shape
        self._relations[relation.oid] = relation, now_s

    def _changed(self, lsn: int, data: bytes, out: list[ConnectRecord]) -> None:
        """Append the records of a change; raises `StaleShape` and `DataFault` with none of them."""
        begin = self._begin
        if begin is None:
            raise TaskFault("the server sent a change outside a transaction")
        self._change += 1
        at = self._position
        if begin.final_lsn < at.lsn or (begin.final_lsn == at.lsn and self._change < at.change):
            return
        message = decode(data)
        assert isinstance(
            message, InsertMessage | UpdateMessage | DeleteMessage | TruncateMessage
        ), message
        if isinstance(message, TruncateMessage):
            made = self._truncated(message, lsn, begin)
        else:
            made = self._row_changed(message, lsn, begin)
        for part, record in enumerate(made, 1):
            if not self._position.skips(begin.final_lsn, self._change, part):
                self._position = StreamPosition(begin.final_lsn, self._change, part, self._previous)
                out.append(record)

    async def _mend(
        self,
        error: StaleShape | DataFault,
        lsn: int,
        data: bytes,
        out: list[ConnectRecord],
    ) -> None:
        """Do what is to be done about a change that failed: describe its table anew, or report."""
        message = decode(data)
        assert isinstance(message, InsertMessage | UpdateMessage | DeleteMessage), message
        oid = message.relation
        for _ in range(STALE_MAX):
            if isinstance(error, DataFault):
                shape = self._shape(oid)
                assert shape is not None, oid
                assert self._begin is not None, oid
                origin = self._origin(self._begin, 1)
                record = ConnectRecord(shape.topic, None, None, None, origin=origin)
                await self._report(record, error)
                return
            # Since the table was described, the column has become optional.
            self._optional.setdefault(oid, set()).add(error.column)
            relation, _ = self._relations.pop(oid)
            await self._described(relation)
            self._change -= 1
            try:
                self._changed(lsn, data, out)
                return
            except (StaleShape, DataFault) as another:
                error = another
        raise TaskFault(f"table {oid} has more than {STALE_MAX} columns")

    def _origin(self, begin: BeginMessage, part: int) -> FromSource:
        offset: dict[str, Any] = {
            "lsn": begin.final_lsn,
            "change": self._change,
            "part": part,
            "previous": self._previous,
        }
        if begin.final_lsn < self._covered.end_lsn:
            offset |= self._covered_stored
        return FromSource(self._partition, offset)

    def stored_position(self) -> dict[str, Any]:
        """Return the offset of the last record, for one that is no change."""
        at = self._position
        offset = {"lsn": at.lsn, "change": at.change, "part": at.part, "previous": at.previous}
        return offset | (self._covered_stored if at.lsn < self._covered.end_lsn else {})

    def _shape(self, oid: int) -> TableShape | None:
        try:
            return self._shapes[oid]
        except KeyError:
            raise TaskFault(
                f"the server sent a change of table {oid} without describing it"
            ) from None

    def _truncated(
        self, message: TruncateMessage, lsn: int, begin: BeginMessage
    ) -> list[ConnectRecord]:
        if "t" in self._settings.skipped:
            return []
        assert self._moment is not None
        out: list[ConnectRecord] = []
        for oid in message.relations:
            shape = self._shape(oid)
            if shape is None or self._covered.has_seen(
                begin.final_lsn, begin.xid, shape.schema, shape.table, None
            ):
                continue
            source = self._moment.source(shape, lsn)
            origin = self._origin(begin, len(out) + 1)
            out.append(change(shape, "t", None, None, source, self._world.now_ms(), origin))
        return out

    def _row_changed(
        self, message: InsertMessage | UpdateMessage | DeleteMessage, lsn: int, begin: BeginMessage
    ) -> list[ConnectRecord]:
        shape = self._shape(message.relation)
        if shape is None:
            return []
        skipped = self._settings.skipped
        match message:
            case InsertMessage(_, new):
                if "c" in skipped or self._has_seen(shape, new, begin):
                    return []
                return [self._one(shape, "c", None, shape.row(new), lsn, begin, 1)]
            case DeleteMessage(_, old, old_is_key):
                if "d" in skipped or self._has_seen(shape, old, begin):
                    return []
                return self._deleted(shape, shape.row(old, is_key=old_is_key), lsn, begin, ())
            case UpdateMessage(_, old, old_is_key, new):
                if "u" in skipped:
                    return []
                return self._updated(shape, old, old_is_key, new, lsn, begin)

    def _updated(
        self,
        shape: TableShape,
        old: Row | None,
        old_is_key: bool,
        new: Row,
        lsn: int,
        begin: BeginMessage,
    ) -> list[ConnectRecord]:
        full_old = None if old_is_key else old
        if old is None or not shape.has_moved(old, new):
            if self._has_seen(shape, new, begin):
                return []
            before = None if old is None else shape.row(old, is_key=old_is_key)
            return [self._one(shape, "u", before, shape.row(new, full_old), lsn, begin, 1)]
        out: list[ConnectRecord] = []
        before, after = shape.row(old, is_key=old_is_key), shape.row(new, full_old)
        if not self._has_seen(shape, old, begin):
            headers = other_key(shape, "new", shape.key_of(after))
            out += self._deleted(shape, before, lsn, begin, headers)
        if not self._has_seen(shape, new, begin):
            headers = other_key(shape, "old", shape.key_of(before))
            out.append(self._one(shape, "c", None, after, lsn, begin, len(out) + 1, headers))
        return out

    def _deleted(
        self,
        shape: TableShape,
        before: Mapping[str, Any],
        lsn: int,
        begin: BeginMessage,
        headers: Any,
    ) -> list[ConnectRecord]:
        gone = self._one(shape, "d", before, None, lsn, begin, 1, headers)
        if not self._settings.has_tombstones or gone.key is None:
            return [gone]
        return [gone, tombstone(shape, gone.key, self._origin(begin, 2))]

    def _one(
        self,
        shape: TableShape,
        op: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        lsn: int,
        begin: BeginMessage,
        part: int,
        headers: Any = (),
    ) -> ConnectRecord:
        assert self._moment is not None
        source = self._moment.source(shape, lsn)
        origin = self._origin(begin, part)
        return change(shape, op, before, after, source, self._world.now_ms(), origin, headers)

    def _has_seen(self, shape: TableShape, row: Row, begin: BeginMessage) -> bool:
        """Whether a snapshot that read this row's place sees the transaction."""
        covered = self._covered
        if begin.final_lsn >= covered.end_lsn:
            return False
        key = shape.ordered_key(row)
        return covered.has_seen(begin.final_lsn, begin.xid, shape.schema, shape.table, key)
