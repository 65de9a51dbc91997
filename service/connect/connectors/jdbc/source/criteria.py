"""Which rows are new: the statement of a mode, and the position behind each row.

    bulk                    all rows, in whatever order
    incrementing            id > last                                   by id
    timestamp               ts > last, or ts = last and key > last      by ts, key
    timestamp+incrementing  ts > last, or ts = last and id > last       by ts, id

A table with a primary key of one whole number tells rows of one timestamp apart by it, in mode
`timestamp` too. Without one, a position never ends inside a group of equal timestamps: after a
crash inside it the group is read again, and no row of it is lost.

Only rows older than now, less `timestamp.delay.interval.ms`, are read in the modes with timestamps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from service.connect.config.values import Values
from service.connect.connectors.jdbc.columns import ColumnKind, TableColumn
from service.connect.connectors.jdbc.dialects import VALUE, SqlDialect
from service.connect.connectors.jdbc.source.keys import BOTH, BULK, INCREMENTING, TIMESTAMP
from service.connect.connectors.jdbc.source.positions import ReadPosition, local_iso
from service.connect.connectors.jdbc.source.relations import Relation
from service.connect.connectors.jdbc.source.values import instant_of, zone_of
from service.connect.connectors.jdbc.urls import POSTGRESQL, SQLITE
from service.connect.data.errors import DataFault, TaskFault

_WHOLE: Final = (ColumnKind.INT8, ColumnKind.INT16, ColumnKind.INT32, ColumnKind.INT64)
_TIMES: Final = (ColumnKind.LOCAL, ColumnKind.INSTANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    mode: str
    dialect: SqlDialect
    zone: tzinfo
    timestamps: Sequence[TableColumn] = ()
    counted: TableColumn | None = None
    """The incrementing column, or the key that stands in for it."""
    places: Sequence[int] = ()
    """Of the timestamps in a row."""
    place: int = 0
    """Of the counted column."""
    initial: int = -1

    @property
    def holds_groups(self) -> bool:
        """Whether rows of one timestamp cannot be told apart."""
        return bool(self.timestamps) and self.counted is None

    def statement(
        self, relation: Relation, position: ReadPosition, suffix: str
    ) -> tuple[str, list[Any]]:
        """Return the statement for the rows behind a position, and its values."""
        quoted, values = self.dialect.quoted, []
        where: list[str] = []
        order: list[str] = []
        counted = "" if self.counted is None else quoted(self.counted.name)
        if self.timestamps:
            ts = self.timestamp_text()
            order.append(ts)
            if position.timestamp is None:
                where.append(f"{ts} IS NOT NULL")
            elif not counted or position.incrementing is None:
                where.append(f"{ts} > {VALUE}")
                values.append(self._bound(position))
            else:
                where.append(f"{ts} >= {VALUE} AND ({ts} > {VALUE} OR {counted} > {VALUE})")
                values += [self._bound(position), self._bound(position), position.incrementing]
        elif counted:
            last = position.incrementing
            where.append(f"{counted} > {VALUE}")
            values.append(self.initial if last is None else last)
        order += [counted] if counted else []
        parts = ["SELECT", relation.selected, "FROM", relation.source]
        parts += [f"WHERE {' AND '.join(where)}"] if where else []
        parts += [f"ORDER BY {', '.join(order)}"] if order else []
        parts += [suffix] if suffix else []
        return self.dialect.finished(" ".join(parts)), values

    def timestamp_text(self) -> str:
        names = [self.dialect.quoted(each.name) for each in self.timestamps]
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"

    def count(self, row: Sequence[Any]) -> int:
        """Return the value of the counted column. Raises `TaskFault` if it is no whole number."""
        raw = row[self.place]
        if type(raw) is int:
            return raw
        if not isinstance(raw, Decimal | float) or int(raw) != raw:
            assert self.counted is not None, "nothing is counted"
            raise TaskFault(f"column {self.counted.name!r} is {raw!r}: it cannot be followed")
        return int(raw)

    def position(self, row: Sequence[Any]) -> ReadPosition:
        """Return the position behind a row. Raises `TaskFault` if it has none."""
        count = None if self.counted is None else self.count(row)
        if not self.timestamps:
            return ReadPosition(incrementing=count)
        raw = next((row[n] for n in self.places if row[n] is not None), None)
        kind = self.timestamps[0].kind
        try:
            point = instant_of(raw, zone_of(kind, self.zone))
        except (DataFault, ValueError, OverflowError) as error:
            named = ", ".join(each.name for each in self.timestamps)
            raise TaskFault(f"column {named} cannot be followed: {error}") from None
        stored = None
        if self.dialect.name == SQLITE:
            stored = raw
        elif kind is ColumnKind.LOCAL and self.zone is not UTC and isinstance(raw, datetime):
            stored = local_iso(raw)
        return ReadPosition(timestamp=point, stored=stored, incrementing=count)

    def _bound(self, position: ReadPosition) -> Any:
        """Return a timestamp as the column compares it."""
        assert position.timestamp is not None, position
        stored, kind = position.stored, self.timestamps[0].kind
        if self.dialect.name == SQLITE:
            return self.stored_like(position.timestamp, "") if stored is None else stored
        if kind is ColumnKind.INSTANT:
            is_aware = self.dialect.name == POSTGRESQL
            return position.timestamp if is_aware else position.timestamp.replace(tzinfo=None)
        if isinstance(stored, str):
            return datetime.fromisoformat(stored)
        return position.timestamp.astimezone(self.zone).replace(tzinfo=None)

    def stored_like(self, point: datetime, example: Any) -> Any:
        """Return a timestamp as SQLite stores the example: text with a blank or a T, or ms."""
        if isinstance(example, int | float):
            return round(point.timestamp() * 1000)
        local = point.astimezone(self.zone).replace(tzinfo=None)
        return local.isoformat("T" if "T" in str(example) else " ", "microseconds")


def criteria_of(relation: Relation, values: Values, dialect: SqlDialect, zone: tzinfo) -> Criteria:
    """Return how new rows of a relation are found; raise `TaskFault` where they cannot be."""
    mode = values["mode"].lower()
    if mode == BULK:
        return Criteria(mode=mode, dialect=dialect, zone=zone)
    timestamps: Sequence[TableColumn] = ()
    counted = None
    if mode in (TIMESTAMP, BOTH):
        timestamps = _timestamps(relation, values, dialect)
    if mode in (INCREMENTING, BOTH):
        counted = _counted(relation, values)
    elif mode == TIMESTAMP:
        counted = _whole_key(relation)
    names = [each.name for each in relation.columns]
    return Criteria(
        mode=mode,
        dialect=dialect,
        zone=zone,
        timestamps=timestamps,
        counted=counted,
        places=[names.index(each.name) for each in timestamps],
        place=0 if counted is None else names.index(counted.name),
        initial=values["incrementing.initial"],
    )


def _timestamps(relation: Relation, values: Values, dialect: SqlDialect) -> Sequence[TableColumn]:
    columns = [_named(relation, name) for name in values["timestamp.column.name"]]
    kinds = {each.kind for each in columns}
    if dialect.name != SQLITE and (len(kinds) > 1 or not kinds <= set(_TIMES)):
        raise TaskFault(
            f"{relation.label}: timestamp.column.name names columns that are no timestamps of one"
            " type"
        )
    is_checked = values["validate.non.null"] and relation.name is not None
    if is_checked and all(each.is_nullable for each in columns):
        raise TaskFault(
            f"{relation.label}: all columns of timestamp.column.name may be null, and rows where"
            " they are would never be read; declare one NOT NULL, or set validate.non.null=false"
        )
    return columns


def _counted(relation: Relation, values: Values) -> TableColumn:
    name = values["incrementing.column.name"]
    if name:
        column = _named(relation, name)
    else:
        found = [each for each in relation.columns if each.is_counted]
        if len(found) != 1:
            raise TaskFault(
                f"{relation.label} has {len(found)} columns that the database counts itself: name"
                " one in incrementing.column.name"
            )
        [column] = found
    if column.kind not in (*_WHOLE, ColumnKind.NUMERIC) or column.scale:
        raise TaskFault(f"{relation.label}: column {column.name!r} has no whole numbers")
    if values["validate.non.null"] and column.is_nullable and relation.name is not None:
        raise TaskFault(
            f"{relation.label}: column {column.name!r} may be null, and rows where it is would"
            " never be read; declare it NOT NULL, or set validate.non.null=false"
        )
    return column


def _whole_key(relation: Relation) -> TableColumn | None:
    keys = [each for each in relation.columns if each.is_key]
    return keys[0] if len(keys) == 1 and keys[0].kind in _WHOLE else None


def _named(relation: Relation, name: str) -> TableColumn:
    column = relation.column(name)
    if column is None:
        raise TaskFault(f"{relation.label} has no column {name!r}")
    return column
