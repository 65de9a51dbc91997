"""Records that name a schema are printed as JSON: what `riacho consume` does by itself.

The registry is not asked before a value looks as if it named a schema, so a topic without schemas
costs a look at the first byte of each value. What cannot be decoded is printed as it is.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from riacho.cli.schemas.options import registry_at
from riacho.records import Record
from storage.errors import RiachoError

if TYPE_CHECKING:
    from riacho.schemas.codecs import Codecs
    from riacho.schemas.registry import SchemaRegistry
    from storage.schemas.codec import Codec

Named: TypeAlias = int | str
"""How a record names its schema: by its id, or by its GUID."""


MISSING_FOR_S: Final = 30.0
"""How long an id that the registry does not know is not asked for again."""

MISSING_MAX: Final = 100
"""Unknown ids after which no others are asked for: these values only look as if they named one."""


@dataclass(frozen=True, slots=True)
class DecodedRecord(Record):
    """A record of which key, value or both were decoded: then they are text of JSON."""

    key_schema: int | None = None
    value_schema: int | None = None
    """The id of the schema; None: it was not decoded."""
    key_json: Any = None
    value_json: Any = None


class RecordDecoder:
    """Decodes what names a schema; close it after use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._registry: SchemaRegistry | None = None
        self._codecs: Codecs | None = None
        self._known: dict[Named, tuple[int, Codec]] = {}
        self._missing: dict[Named, float] = {}

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def decoded(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records, decoded where that is possible."""
        values = self._found(records, is_key=False)
        keys = self._found(records, is_key=True)
        if not values and not keys:
            return records
        return [
            _with(record, keys.get(i), values.get(i)) if i in keys or i in values else record
            for i, record in enumerate(records)
        ]

    def _found(self, records: Sequence[Record], *, is_key: bool) -> dict[int, tuple[int, Any]]:
        """Return what could be decoded, by the position of its record."""
        by_schema: dict[Named, list[tuple[int, bytes]]] = defaultdict(list)
        for i, record in enumerate(records):
            data = record.key if is_key else record.value
            if data is None or not (data[:1] == b"\0" or record.headers):
                continue
            from riacho.schemas.deserializers import frame_of

            if (frame := frame_of(data, record.headers, is_key=is_key)) is not None:
                by_schema[frame[0]].append((i, frame[1]))
        found: dict[int, tuple[int, Any]] = {}
        for named, bodies in by_schema.items():
            if (known := self._codec(named)) is None:
                continue
            schema_id, codec = known
            decoded = codec.decode_many([body for _, body in bodies])
            refused = {each.index for each in decoded.refused}
            for number, (i, _) in enumerate(bodies):
                if number not in refused:
                    found[i] = (schema_id, decoded.values[number])
        return found

    def _codec(self, named: Named) -> "tuple[int, Codec] | None":
        known = self._known.get(named)
        if known is not None:
            return known
        now_s = time.monotonic()
        if named in self._missing and now_s < self._missing[named]:
            return None
        if named not in self._missing and len(self._missing) >= MISSING_MAX:
            return None
        try:
            known = self._known[named] = self._asked(named)
        except RiachoError:
            self._missing[named] = now_s + MISSING_FOR_S
            return None
        return known

    def _asked(self, named: Named) -> "tuple[int, Codec]":
        from riacho.schemas.codecs import Codecs

        if self._registry is None or self._codecs is None:
            self._registry = registry_at(self._url)
            self._codecs = Codecs(self._registry.twin)
        schema_id = named
        if isinstance(schema_id, str):
            ids = self._registry.ids_of(schema_id)
            schema_id = ids.get(".") or next(iter(ids.values()))
        schema = self._registry.schema(named)
        return schema_id, self._registry.wait_for(self._codecs.of(schema))


def _with(
    record: Record, key: tuple[int, Any] | None, value: tuple[int, Any] | None
) -> DecodedRecord:
    import msgspec

    return DecodedRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key if key is None else msgspec.json.encode(key[1]),
        record.value if value is None else msgspec.json.encode(value[1]),
        record.headers,
        key_schema=None if key is None else key[0],
        value_schema=None if value is None else value[0],
        key_json=None if key is None else key[1],
        value_json=None if value is None else value[1],
    )
