"""The column `value_`: values decoded by the schemas of a subject.

The driver asks the gateway's registry for all versions of the subject, and sends them with the
tasks: no task asks anyone. The type is the union of all versions, as in compacted segments with
typed columns (`storage/schemas/columns.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from riacho.http.identity import Credentials
from riacho.records import TopicPartition
from riacho.spark.read.options import DecodeOptions
from storage.errors import InvalidConfig, InvalidRecord
from storage.schemas.source import InvalidSchema, SchemaSource, SchemaType

if TYPE_CHECKING:
    from riacho.schemas.values import RegisteredSchema
    from storage.schemas.columns import ColumnUnion, Decoder, Fit

COLUMN: Final = "value_"
VERSIONS_MAX: Final = 100
"""Maximum number of versions of a subject whose values are decoded, the oldest ones."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """A schema that values may have."""

    schema_id: int
    guid: str
    source: SchemaSource


@dataclass(frozen=True)
class Decoding:
    """What a task needs to decode values."""

    schemas: tuple[ValueSchema, ...]
    fails_fast: bool

    def __getstate__(self) -> dict[str, Any]:
        # Without what was made of it, which may not be pickled.
        return {"schemas": self.schemas, "fails_fast": self.fails_fast}

    @property
    def type(self) -> pa.DataType:
        return self._made[0].fields[0].type

    @cached_property
    def _made(self) -> "tuple[ColumnUnion, dict[int | str, tuple[Decoder, Fit, bool]]]":
        """Return the union, and what decodes values of each schema, by its id and its GUID."""
        from storage.schemas.columns import ColumnUnion

        union = ColumnUnion()
        found: dict[int | str, tuple[Decoder, Fit, bool]] = {}
        for each in self.schemas:
            decoder = _decoder(each)
            place = None if decoder is None else union.add(COLUMN, decoder.type)
            if decoder is None or place is None or place[0] != COLUMN:
                continue
            has_indexes = each.source.type is SchemaType.PROTOBUF
            found[each.schema_id] = found[each.guid] = (decoder, place[1], has_indexes)
        if not found:
            raise InvalidConfig("decode: no schema of the subject has columns")
        return union, found

    def column(
        self,
        values: pa.BinaryArray,
        headers: pa.ListArray,
        kind: pa.DataType,
        place: TopicPartition,
    ) -> pa.Array:
        """Return the values as `kind`, which has some or all fields of `type`.

        What does not decode is null; raises `InvalidRecord` instead if it `fails_fast`.
        """
        from storage.schemas.carried import carried
        from storage.schemas.columns import typed_array
        from storage.schemas.columns_rows import ColumnValues, by_message, spread
        from storage.schemas.framing import VALUE_HEADER

        found: list[ColumnValues] = []
        for each in carried(values, headers, VALUE_HEADER):
            known = self._made[1].get(each.ref)
            if known is None:
                continue
            decoder, fit, has_indexes = known
            rows, bodies = each.rows, each.bodies(values)
            if has_indexes:
                messages = {indexes: (at, some) for indexes, at, some in by_message(bodies)}
                at, bodies = messages.get((0,), ([], []))
                rows = rows[at]
            if bodies:
                found.append(ColumnValues(rows, typed_array(decoder, bodies), fit))
        column = spread(found, self.type, len(values))
        if self.fails_fast and column.null_count > values.null_count:
            raise InvalidRecord(f"a value of {place} does not decode; decode.mode is FAILFAST")
        return conformed(column, kind)


def _decoder(schema: ValueSchema) -> "Decoder | None":
    from storage.schemas.columns_of import decoder_of

    try:
        return decoder_of(schema.source)
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"decode needs {error.name!r}; pip install 'riacho[schemas]'") from None
    except (InvalidSchema, ValueError):
        return None


def conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as a type that has some of their fields, or raise `InvalidConfig`."""
    if array.type == kind:
        return array
    if not pa.types.is_struct(array.type) or not pa.types.is_struct(kind):
        try:
            return array.cast(kind)
        except pa.ArrowException as error:
            raise InvalidConfig(f"{COLUMN} has {array.type} where {kind} is wanted") from error
    children = []
    for each in kind:
        at = array.type.get_field_index(each.name)
        if at < 0:
            raise InvalidConfig(f"{COLUMN} has no field {each.name}; it has {array.type}")
        children.append(conformed(array.field(at), each.type))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def decoding_of(options: DecodeOptions, url: str, credentials: Credentials) -> Decoding:
    """Ask the registry for the schemas that the options name."""
    from riacho.schemas.codecs import Codecs
    from riacho.schemas.registry import SchemaRegistry

    with SchemaRegistry(
        url,
        token=credentials.token,
        basic=credentials.basic,
        ca_file=credentials.ca_file,
        client_cert=credentials.client_cert,
    ) as registry:
        found: Sequence[RegisteredSchema]
        if options.schema_id is not None:
            found = [registry.schema(options.schema_id)]
        else:
            numbers = registry.versions(options.subject, deleted=True)[:VERSIONS_MAX]
            found = [registry.version(options.subject, n, deleted=True) for n in numbers]
        codecs = Codecs(registry.twin)
        return Decoding(
            tuple(
                ValueSchema(each.id, each.guid, registry.wait_for(codecs.source_of(each)))
                for each in found
            ),
            options.fails_fast,
        )
