"""Typed columns of compacted segments: `value_` and `key_`, beside the raw bytes.

Keys and values that name a schema (`storage/schemas/carried.py`) are decoded when a row group is
complete. The columns of a file are the union of

- all versions of the topic's subject, in their order, if the file has values of one of them: so
  a field has the same name and type in all files;
- other schemas seen until the first row group is complete;
- those of the segments that it replaces.

If a schema with other columns comes later, the next file begins.

What does not decode is null, and a file in which nothing does has no such columns. Nobody reads
them back: the raw bytes are the records.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from storage.formats.compacted_footer import ColumnSchema
from storage.schemas.carried import Carried, Ints, SchemaRef, carried
from storage.schemas.columns import ColumnUnion, Decoder, Fit, typed_array
from storage.schemas.columns_rows import ColumnValues, Indexes, by_message, spread
from storage.schemas.framing import KEY_HEADER, VALUE_HEADER

HEADERS: Final = {"value": VALUE_HEADER, "key": KEY_HEADER}
"""By column: the header that may name its schema."""

REFS_MAX: Final = 10_000
"""Maximum number of ids looked up for one unit: the first bytes of other data look like ids."""

KINDS_MAX: Final = 1000
"""Maximum number of schemas that have columns in one file."""

CELLS_MAX: Final = 8_000_000
"""Maximum number of cells of typed columns in a row group, but for lists."""


class DataSchema(Protocol):
    """What reads data of one schema."""

    @property
    def schema_id(self) -> int: ...

    @property
    def has_indexes(self) -> bool:
        """Whether data begins with the indexes of a message, as Protobuf's does."""

    def decoder(self, indexes: Indexes) -> Decoder | None:
        """Return what reads a message, or the only kind of data; None: there are no columns."""


class DataSchemas(Protocol):
    """The registered schemas."""

    async def find(self, ref: SchemaRef) -> DataSchema | None:
        """Return a schema; None: there is none, or its data has no columns."""

    async def versions(self, topic: str, column: str) -> Sequence[int]:
        """Return the ids of all versions of the topic's subject for `key` or `value`."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One type of keys or values: where it is in the union of its column."""

    decoder: Decoder
    name: str
    """Of the typed column."""
    fit: Fit


class TypedColumns:
    """The typed columns of the segments that replace one unit."""

    def __init__(self, schemas: DataSchemas, topic: str) -> None:
        self._schemas = schemas
        self._topic = topic
        self._versions: dict[str, Sequence[int]] = {}
        """By column, once a schema was found."""
        self._found: dict[SchemaRef, DataSchema | None] = {}
        self._kinds: dict[ColumnSchema, _Kind | None] = {}
        self._unions = {column: ColumnUnion() for column in HEADERS}
        self._file: dict[str, list[pa.Field]] = {}
        """The typed columns of the current file for each column, once they are decided."""

    async def learn(self, refs: Iterable[SchemaRef]) -> None:
        """Look up schemas: one read of the table for each that is new."""
        for ref in refs:
            if ref not in self._found and len(self._found) < REFS_MAX:
                self._found[ref] = await self._schemas.find(ref)
        if not self._versions and any(self._found.values()):
            for column in HEADERS:
                self._versions[column] = await self._schemas.versions(self._topic, column)
                for each in self._versions[column]:
                    self._found[each] = await self._schemas.find(each)

    def unknown(self, batch: pa.RecordBatch) -> set[SchemaRef]:
        """Return what to `learn` before these records are written."""
        found = {each.ref for column in HEADERS for each in _carried(batch, column)}
        return found - self._found.keys()

    def expect(self, schemas: Sequence[ColumnSchema]) -> None:
        """Make room for the columns of a segment that is read later."""
        for each in schemas:
            if each.column in HEADERS:
                self._kind(each)

    def needs_new_file(self, batch: pa.RecordBatch) -> bool:
        """Make room for these records; return whether the current file has none for them."""
        needs = False
        for column, union in self._unions.items():
            found = [self._kind(schema) for schema in self._schemas_in(batch, column)]
            if any(found) and self._file.get(column, union.fields) != union.fields:
                needs = True
        return needs

    def begin_file(self) -> None:
        self._file = {}

    @property
    def rows_max(self) -> int:
        leaves = sum(union.leaf_count for union in self._unions.values())
        return max(1, CELLS_MAX // max(1, leaves))

    def widened(self, table: pa.Table) -> pa.Table:
        [batch] = table.combine_chunks().to_batches()
        for column in HEADERS:
            found = self._typed_values(batch, column)
            if column not in self._file:
                self._file[column] = self._unions[column].fields if found else []
            for each in self._file[column]:
                values = spread(found.get(each.name, ()), each.type, table.num_rows)
                table = table.append_column(each, values)
        return table

    def schemas(self) -> list[ColumnSchema]:
        return [
            schema
            for schema, kind in self._kinds.items()
            if kind is not None and self._file.get(schema.column)
        ]

    def _typed_values(self, batch: pa.RecordBatch, column: str) -> dict[str, list[ColumnValues]]:
        """Return the values that decode, by the name of their typed column."""
        found: dict[str, list[ColumnValues]] = defaultdict(list)
        failed: list[ColumnSchema] = []
        if self._file.get(column) == []:
            return found
        for schema, rows, bodies in self._bodies(batch, column):
            kind = self._kind(schema)
            if kind is None:
                continue
            values = typed_array(kind.decoder, bodies)
            if values.null_count < len(values):
                found[kind.name].append(ColumnValues(rows, values, kind.fit))
            else:
                failed.append(schema)
        if not found and column not in self._file:
            # The file has no columns for them. Later ones would end it, again and again.
            self._kinds.update(dict.fromkeys(failed))
        return found

    def _kind(self, schema: ColumnSchema) -> _Kind | None:
        """Return the place of a schema in the union, which is made if there is none."""
        if schema not in self._kinds:
            if len(self._kinds) >= KINDS_MAX:
                return None
            self._kinds[schema] = self._made(schema)
        return self._kinds[schema]

    def _made(self, schema: ColumnSchema) -> _Kind | None:
        found = self._found.get(schema.ref)
        decoder = None if found is None else found.decoder(schema.indexes)
        if decoder is None:
            return None
        union, name = self._unions[schema.column], f"{schema.column}_"
        if found is not None and found.schema_id in self._versions[schema.column]:
            for version in self._versions[schema.column]:
                other = self._found[version]
                older = None if other is None else other.decoder(schema.indexes)
                if older is not None:
                    union.add(name, older.type)
        place = union.add(name, decoder.type)
        return None if place is None else _Kind(decoder, *place)

    def _schemas_in(self, batch: pa.RecordBatch, column: str) -> Iterator[ColumnSchema]:
        for each in _carried(batch, column):
            found = self._found.get(each.ref)
            if found is not None and found.has_indexes:
                bodies = each.bodies(batch.column(column))
                yield from (ColumnSchema(column, each.ref, at) for at, _, _ in by_message(bodies))
            elif found is not None:
                yield ColumnSchema(column, each.ref, ())

    def _bodies(
        self, batch: pa.RecordBatch, column: str
    ) -> Iterator[tuple[ColumnSchema, Ints, list[bytes]]]:
        """Yield the rows of each schema that is known, and their data."""
        values = batch.column(column)
        for each in _carried(batch, column):
            found = self._found.get(each.ref)
            if found is None:
                continue
            bodies = each.bodies(values)
            if not found.has_indexes:
                yield ColumnSchema(column, each.ref, ()), each.rows, bodies
                continue
            for indexes, places, some in by_message(bodies):
                yield ColumnSchema(column, each.ref, indexes), each.rows[places], some


def _carried(batch: pa.RecordBatch, column: str) -> list[Carried]:
    return carried(batch.column(column), batch.column("headers"), HEADERS[column])
