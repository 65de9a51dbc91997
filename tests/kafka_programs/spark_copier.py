"""Writes to a topic with Spark, copies it to another as a stream, and prints what it saw.

python spark_copier.py <bootstrap> <jars> <checkpoint>
"""

import json
import sys
import time

from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000


def main(bootstrap: str, jars: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    where = {"kafka.bootstrap.servers": bootstrap}

    def read(topic: str, **options: str) -> DataFrame:
        source = spark.read.format("kafka").options(**where, **options)
        return source.option("subscribe", topic).option("includeHeaders", "true").load()

    record = ("cast(id % 10 as string) key", "concat('v', id) value")
    header = "array(struct('from' as key, cast('spark' as binary) as value)) headers"
    spark.range(1000).selectExpr(*record, header).write.format("kafka").options(
        **where, topic="spark-one"
    ).save()
    source = spark.readStream.format("kafka").options(
        **where, subscribe="spark-one", startingOffsets="earliest", maxOffsetsPerTrigger="400"
    )
    query = (
        source.load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .options(**where, topic="spark-two", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written, copied = read("spark-one"), read("spark-two")
    an_hour_ago = str(int(time.time() * 1000) - HOUR_MS)
    seen = {
        "written": written.count(),
        "last offset": written.selectExpr("max(offset)").collect()[0][0],
        "since an hour": read("spark-one", startingTimestamp=an_hour_ago).count(),
        "rows of each batch": [each["numInputRows"] for each in query.recentProgress],
        "copied": copied.count(),
        "different": copied.select("value").distinct().count(),
        "with headers": written.where("headers[0].key = 'from'").count(),
    }
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
