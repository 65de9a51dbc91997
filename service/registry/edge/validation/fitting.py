"""Whether data fits a schema, as it lies in keys and values."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from service.http.bodies.schema_fetch import FoundSchema
from service.registry.edge.validation.marks import Mark
from storage.schemas.codec import room_for
from storage.schemas.refused import RefusedValue
from storage.schemas.source import SchemaType

COST: Final = 4
"""To check a byte takes as long as to decode so many of JSON."""


def misfits(schema: FoundSchema, values: pa.Array, mark: Mark) -> list[RefusedValue]:
    """Return which of the values, all with this mark and none of them null, do not fit."""
    bodies: list[bytes] = values.to_pylist()
    if mark.schema is None and schema.type is not SchemaType.JSON:
        return _misfits_as_json(schema, bodies)
    if mark.skipped:
        bodies = [body[mark.skipped :] for body in bodies]
    if mark.lead and schema.type is SchemaType.PROTOBUF:
        bodies = [mark.lead + body for body in bodies]
    return schema.codec.validate_many(bodies)


def _misfits_as_json(schema: FoundSchema, bodies: Sequence[bytes]) -> list[RefusedValue]:
    """Return which of these values, as JSON, would not become data of the schema."""
    values, broken = [], []
    for index, body in enumerate(bodies):
        value: Any = None
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            broken.append(RefusedValue(index, "", f"it is not JSON: {error}"))
        else:
            if value is None:
                broken.append(RefusedValue(index, "", "it is the word null"))
        values.append(value)
    found = [*broken, *schema.codec.encode_many(values, room_for(bodies)).refused]
    return sorted(found, key=lambda each: each.index)
