"""SQL over topics: every topic that a query names is made available as a view.

The fields of JSON object values are columns; other topics have `key` and `value` as text. Every
view also has

    _key  _partition  _offset  _timestamp  _headers

with more leading underscores if the JSON has a field of that name. A view has the name of its
topic, in backticks if it contains dots or dashes.

Views are created when Spark reports a missing table, so that Spark alone decides which names in a
query are tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException, PySparkException

from riacho.admin.admin import Admin, PartitionInfo
from riacho.consumer.consumer import Consumer
from riacho.errors import new_error
from riacho.spark.source import RiachoDataSource
from riacho.spark.sql import schema as sql_schema
from riacho.spark.sql.errors import BadQuery, explained, missing_relation
from storage.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE_RECORDS: Final = 1000
"""Number of records of a topic that are sampled to infer its columns."""

SAMPLE_PARTITIONS: Final = 16
SAMPLE_WAIT_MS: Final = 2000
VIEWS_MAX: Final = 100

META: Final = ("key", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """Which records of each topic are read: from where, to where, as options of the source.

    Both functions return the options for the partitions of a topic.
    """

    start: Callable[[Admin, str, list[PartitionInfo]], Mapping[str, str]]
    end: Callable[[Admin, str, list[PartitionInfo]], Mapping[str, str]] | None
    """None: a streaming read without an end."""


@dataclass(slots=True)
class TopicViews:
    """Creates the views of one session."""

    spark: "SparkSession"
    admin: Admin
    url: str
    span: ReadSpan
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Columns by topic, as DDL; "" is for all other topics."""
    watermark: tuple[str, str] | None = None
    """Column and delay."""
    names: list[str] = field(default_factory=list)
    """Topics that already have a view."""

    def query(self, text: str) -> "DataFrame":
        """Return the result of the query, lazily.

        Raises `BadQuery` if it is invalid, and `UnknownTopicOrPartition` for unknown topics.
        """
        register(self.spark)
        for _ in range(VIEWS_MAX):
            try:
                return self.spark.sql(text)
            except ParseException as error:
                raise new_error(BadQuery, explained(error)) from None
            except AnalysisException as error:
                missing = missing_relation(error)
                if missing is None:
                    raise new_error(BadQuery, explained(error)) from None
            except PySparkException as error:
                raise new_error(BadQuery, explained(error)) from None
            self._make_view(missing)
        raise new_error(BadQuery, f"the query names more than {VIEWS_MAX} topics")

    def forget(self) -> None:
        """Drop the views, since others may use the session."""
        for name in self.names:
            self.spark.catalog.dropTempView(name)
        self.names.clear()

    def _make_view(self, parts: tuple[str, ...]) -> None:
        name = ".".join(parts)
        partitions = self.admin.partitions(name)
        if len(parts) > 1:
            raise new_error(BadQuery, f"write the topic in backticks: FROM `{name}`")
        view = self._view(name, partitions)
        view.createOrReplaceTempView(sql_schema.quoted(name))
        self.names.append(name)

    def _view(self, topic: str, partitions: list[PartitionInfo]) -> "DataFrame":
        from pyspark.sql import functions as f

        options = {"url": self.url, "subscribe": topic, "includeHeaders": "true"}
        options |= self.span.start(self.admin, topic, partitions)
        if self.span.end is None:
            reader: Any = self.spark.readStream
        else:
            reader = self.spark.read
            options |= self.span.end(self.admin, topic, partitions)
        records = reader.format("riacho").options(**options).load()
        schema = self._schema(topic, partitions)
        if schema is None:
            named = {"key": f.col("key").cast("string"), "value": f.col("value").cast("string")}
        else:
            fields = self._struct(topic, schema)
            parsed = f.from_json(f.col("value").cast("string"), fields)
            named = {each.name: parsed.getField(each.name) for each in fields.fields}
        prefix = meta_prefix(named)
        columns = [column.alias(name) for name, column in named.items()]
        for name in META:
            column = f.col(name).cast("string") if name == "key" else f.col(name)
            columns.append(column.alias(prefix + name))
        view = records.select(*columns)
        return self._with_watermark(view, prefix)

    def _with_watermark(self, view: "DataFrame", prefix: str) -> "DataFrame":
        if self.watermark is None:
            return view
        column, delay = self.watermark
        try:
            return view.withWatermark(column or f"{prefix}timestamp", delay)
        except PySparkException as error:
            raise new_error(BadQuery, f"--watermark: {explained(error)}") from None

    def _schema(self, topic: str, partitions: list[PartitionInfo]) -> str | None:
        given = self.schemas.get(topic, self.schemas.get(""))
        if given is not None:
            return given
        values = sample(self.url, topic, partitions)
        documents = sql_schema.objects(values)
        if documents is None:
            if self.span.end is None and not values:
                raise new_error(
                    BadQuery,
                    f"topic {topic!r} is empty, so its columns are not known: give them with"
                    f" --schema '{topic}=id BIGINT, name STRING'",
                )
            return None
        return sql_schema.ddl(sql_schema.infer(documents))

    def _struct(self, topic: str, schema: str) -> Any:
        from pyspark.sql.types import StructType

        try:
            return StructType.fromDDL(schema)
        except PySparkException as error:
            detail = f"--schema: {schema!r} of {topic!r} is no list of columns: {explained(error)}"
            raise new_error(BadQuery, detail) from None


def register(spark: "SparkSession") -> None:
    """Register `format("riacho")` with the session, unless it is already."""
    try:
        spark.dataSource.register(RiachoDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def meta_prefix(names: Mapping[str, object]) -> str:
    """Return the prefix for columns that are not fields of the value."""
    taken = {name.lower() for name in names}
    prefix = "_"
    while any(prefix + name in taken for name in META):
        prefix += "_"
    return prefix


def sample(url: str, topic: str, partitions: list[PartitionInfo]) -> list[bytes | None]:
    """Return values of the topic: the newest ones of some of its partitions."""
    full = [each for each in partitions if each.high_watermark > each.log_start_offset]
    step = max(len(full) // SAMPLE_PARTITIONS, 1)
    chosen = full[::step][:SAMPLE_PARTITIONS]
    if not chosen:
        return []
    share = -(-SAMPLE_RECORDS // len(chosen))
    left = {each.partition: each.high_watermark for each in chosen}
    values: list[bytes | None] = []
    with Consumer(url, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, each.partition) for each in chosen)
        for each in chosen:
            start = max(each.log_start_offset, each.high_watermark - share)
            consumer.seek(topic, each.partition, start)
        while left and len(values) < SAMPLE_RECORDS:
            records = consumer.poll(SAMPLE_WAIT_MS)
            if not records:
                break  # The rest was compacted away.
            for record in records:
                values.append(record.value)
                if record.offset + 1 >= left.get(record.partition, 0):
                    left.pop(record.partition, None)
    return values


def check_topic(admin: Admin, topic: str) -> None:
    """Raise `UnknownTopicOrPartition`, with advice, unless the topic exists."""
    try:
        admin.describe_topic(topic)
    except UnknownTopicOrPartition:
        raise new_error(
            UnknownTopicOrPartition,
            f"there is no topic {topic!r}; create it first: riacho topic create {topic}",
        ) from None
