"""`decode=true`: values as a typed column, by the schemas of the registry."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from riacho import Admin, Producer
from riacho.schemas.registry import SchemaRegistry
from riacho.schemas.values import SchemaText
from riacho.spark.read.reading import RiachoReader, schema_with_values
from service.jobs import work
from service.jobs.compact import compact
from service.jobs.runners.choice import How
from service.jobs.stores import ship
from service.settings import Settings
from storage.errors import InvalidConfig, InvalidRecord, UnknownSchema
from storage.schemas.codecs import codec_of
from storage.schemas.framing import VALUE_HEADER, framed, header_of
from storage.schemas.source import SchemaSource, SchemaType
from tests.gateway import GatewayProcess, start_gateway
from tests.riacho.spark.reads import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def order(**fields: str) -> str:
    parts = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": parts})


OLD, NEW = order(amount="int"), order(amount="long", city="string")
PROTO = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";\nmessage A { int32 n = 1; }'


def avro(text: str, **value: Any) -> bytes:
    [body] = codec_of(SchemaSource(SchemaType.AVRO, text)).encode_many([value]).bodies
    assert body is not None
    return body


def filled(gateway: GatewayProcess, topic: str) -> None:
    """Make a topic with values of two versions, by prefix and by header, and others."""
    with Admin(gateway.url) as admin, SchemaRegistry(gateway.url) as registry:
        admin.create_topic(topic, config={"table.columns": "true"})
        registry.set_level("NONE", f"{topic}-value")
        old = registry.register(f"{topic}-value", SchemaText(text=OLD))
        new = registry.register(f"{topic}-value", SchemaText(text=NEW))
        header = {VALUE_HEADER: header_of(registry.schema(new.id).guid)}
    values: list[tuple[bytes | None, dict[str, bytes] | None]] = [
        (framed(old.id, avro(OLD, amount=3)), None),
        (avro(NEW, amount=2**40, city="Faro"), header),
        (b"plain", None),
        (None, None),
    ]
    with Producer(gateway.url) as producer:
        for value, headers in values:
            producer.send(topic, value=value, partition=0, headers=headers)


EXPECTED = [{"amount": 3, "city": None}, {"amount": 2**40, "city": "Faro"}, None, None]


def read(given: dict[str, str], schema: StructType | None = None) -> pa.Table:
    return table(RiachoReader(given, schema or schema_with_values(given, ["offset"])))


def test_values_are_decoded_by_the_versions_of_a_subject(gateway: GatewayProcess) -> None:
    filled(gateway, "decoded")
    given = {"url": gateway.url, "subscribe": "decoded", "decode": "true"}
    assert read(given).to_pylist() == [
        {"offset": number, "value_": value} for number, value in enumerate(EXPECTED)
    ]
    narrow = StructType([StructField("value_", StructType([StructField("amount", DoubleType())]))])
    assert read(given, narrow).column("value_").to_pylist()[1] == {"amount": 2.0**40}
    absent = StructType([StructField("value_", StructType([StructField("x", LongType())]))])
    with pytest.raises(InvalidConfig, match="value_ has no field x; it has struct<amount"):
        read(given, absent)
    with pytest.raises(InvalidRecord, match="a value of decoded/0 does not decode"):
        read({**given, "decode.mode": "FAILFAST"})

    with SchemaRegistry(gateway.url) as registry:
        first = registry.version("decoded-value", 1).id
        registry.register("proto", SchemaText(text=PROTO, kind="PROTOBUF"))
    one = read({**given, "decode.schema": str(first)}).column("value_").to_pylist()
    assert one == [{"amount": 3}, None, None, None]
    other = read({**given, "decode.subject": "proto"})
    assert other.schema.field("value_").type == pa.struct([("n", pa.int32())])
    assert other.column("value_").null_count == 4
    with pytest.raises(UnknownSchema):
        read({**given, "decode.subject": "absent"})
    for wrong in ({"decode.schema": "1"}, {"decode": "true", "subscribe": "a,b"}):
        with pytest.raises(InvalidConfig, match="decode"):
            read({"url": gateway.url, "subscribe": "decoded", **wrong})


async def compacted(spark: "SparkSession", settings: Settings) -> None:
    """Compact in Spark's workers, which find the schemas by themselves."""
    from service.jobs.runners.spark_runner import SparkRunner

    async with work.begun(settings, "compact", How(spark=True)) as context:
        context.runners._spark = SparkRunner(spark, ship(settings))
        assert (await compact(context, ["orders"])).ok


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_table_and_a_stream_of_decoded_values(spark: "SparkSession", tmp_path: Path) -> None:
    with start_gateway(tmp_path) as gateway:
        filled(gateway, "orders")
        asyncio.run(compacted(spark, Settings(data=tmp_path / "data")))
        [file] = (tmp_path / "data").rglob("*.parquet")

        options = {"url": gateway.url, "subscribe": "orders", "decode": "true"}
        options["includeHeaders"] = "true"
        frame = spark.read.format("riacho").options(**options).load()
        assert frame.dtypes[-1] == ("value_", "struct<amount:bigint,city:string>")
        amounts = [row.amount for row in frame.orderBy("offset").select("value_.amount").collect()]
        assert amounts == [3, 2**40, None, None]
        # The same columns are in the file that the compaction wrote.
        stored = spark.read.parquet(str(file))
        assert stored.where("value_.amount > 5").select("value_.city").collect() == [("Faro",)]

        stream = spark.readStream.format("riacho").options(**options, startingOffsets="earliest")
        query = (
            stream.load()
            .select("offset", "value_.*")
            .writeStream.format("memory")
            .queryName("decoded_orders")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = spark.table("decoded_orders").where("amount IS NOT NULL").orderBy("offset")
        assert rows.collect() == [(0, 3, None), (1, 2**40, "Faro")]
