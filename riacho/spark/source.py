"""The Spark data source `riacho`, with the same columns as Spark's Kafka source and sink.

Readers and writers are imported on demand: a worker that reads need not load the writers.
"""

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key: string, value: binary>>"


class RiachoDataSource(DataSource):
    """Topics as tables and streams. See `docs/spark.md` for all options."""

    @classmethod
    def name(cls) -> str:
        return "riacho"

    def schema(self) -> str | StructType:
        """Return the columns of Spark's Kafka source; `headers` with `includeHeaders`, as there.

        With `decode`, also `value_`. To read fewer columns, name them with `.schema(…)`; the others
        are not decoded.
        """
        text = f"{SCHEMA}, {HEADERS}" if self._is_set("includeHeaders") else SCHEMA
        if not self._is_set("decode"):
            return text
        from riacho.spark.read.reading import schema_with_values

        names = [each.split()[0] for each in SCHEMA.split(", ")]
        with_headers = ["headers"] if self._is_set("includeHeaders") else []
        return schema_with_values(self.options, [*names, *with_headers])

    def _is_set(self, name: str) -> bool:
        return str(self.options.get(name, "")).strip().lower() == "true"

    def reader(self, schema: StructType) -> DataSourceReader:
        from riacho.spark.read.reading import RiachoReader

        return RiachoReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from riacho.spark.read.streaming import RiachoStreamReader

        return RiachoStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from riacho.spark.write.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from riacho.spark.write.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
