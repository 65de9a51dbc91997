"""Checks of data, one for each schema, kept because they take milliseconds to make."""

from collections import OrderedDict
from typing import Final

import pyarrow as pa

from service.registry.data.refused import RefusedValue
from service.registry.formats.form import InvalidSchema, SchemaType
from service.registry.reading import Schema, SchemaReader
from service.registry.validation.marks import Mark

KEPT_MAX: Final = 64


class Checker:
    def __init__(self, schema: Schema, parsed) -> None:
        from service.registry.data.json_values import JsonValues

        self._values = JsonValues(parsed)

    def cost(self, n):
        return n * 4

    def refused(self, values: pa.Array, mark: Mark) -> list[RefusedValue]:
        bodies = values.to_pylist()
        if mark.skipped:
            bodies = [body[mark.skipped :] for body in bodies]
        return self._values.validate_many(bodies)


class Checkers:
    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[tuple[str, int], Checker] = OrderedDict()

    async def checker(self, schema: Schema, *, is_plain=False) -> Checker:
        key = schema.context, schema.schema_id
        kept = self._kept.get(key)
        if kept is None:
            if schema.type is not SchemaType.JSON:
                raise InvalidSchema("later")
            kept = Checker(schema, await self._reader.parsed(schema))
            self._kept[key] = kept
        return kept
