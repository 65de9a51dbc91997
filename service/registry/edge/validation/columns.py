"""The columns of a batch that is to be checked, each made when a check looks at it."""

from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from service.process.limits.heavy_work import HeavyWork
from service.registry.edge.validation.marks import Places, places_in
from storage.formats.kafka.batches import Batches, Opened
from storage.formats.kafka.columns import headers_of, taken
from storage.formats.kafka.decoding import decode
from storage.lanes.building import Records
from storage.topics.schema_rules import Part


class ArrowColumns:
    """Those of Arrow's records."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    @property
    def count(self) -> int:
        return int(self._batch.num_rows)

    def places(self, part: Part) -> Places:
        return places_in(self.values(part))

    def values(self, part: Part) -> pa.Array:
        return self._batch.column(part)

    @property
    def headers(self) -> pa.Array | None:
        return self._batch.column("headers")


class KafkaColumns(ArrowColumns):
    """Those of a batch of Kafka's protocol: what carries ids is found where it lies."""

    def __init__(self, opened: Opened) -> None:
        self._body, self._walked = opened
        self._values: dict[Part, pa.Array] = {}

    @property
    def count(self) -> int:
        return len(self._walked.value_at)

    def places(self, part: Part) -> Places:
        walked = self._walked
        at, sizes = (
            (walked.key_at, walked.key_bytes)
            if part == "key"
            else (walked.value_at, walked.value_bytes)
        )
        return Places(np.frombuffer(self._body, np.uint8), at, sizes)

    def values(self, part: Part) -> pa.Array:
        if part not in self._values:
            _, at, sizes = self.places(part)
            self._values[part] = taken(pa.py_buffer(self._body), at, sizes)
        return self._values[part]

    @cached_property
    def _headers(self) -> pa.Array | None:
        entries = self._walked.entries
        return None if entries is None else headers_of(pa.py_buffer(self._body), entries)

    @property
    def headers(self) -> pa.Array | None:
        return self._headers


async def columns_of(records: Records, heavy_work: HeavyWork) -> ArrowColumns:
    """Return the columns of records as they came in."""
    if not isinstance(records, Batches):
        return ArrowColumns(records)
    if records.opened is not None:
        return KafkaColumns(records.opened)
    return ArrowColumns(
        await heavy_work.convert(records.record_bytes, partial(decode, records.data))
    )
