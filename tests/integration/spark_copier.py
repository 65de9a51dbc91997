"""A driver for tests to kill: copies a topic to another one, partition by partition.

spark_copier.py URL SOURCE TARGET CHECKPOINT

It ends when all that was there at its start is copied, in micro-batches of some records each.
"""

import sys
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from riacho.spark import RiachoDataSource
from service.jobs.runners.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS_PER_BATCH = 60


def begin(
    spark: "SparkSession", url: str, source: str, target: str, checkpoint: str
) -> "StreamingQuery":
    return (
        spark.readStream.format("riacho")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
        .select("key", "value", "partition")
        .writeStream.format("riacho")
        .option("url", url)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    with session("local[2]") as spark:
        spark.dataSource.register(RiachoDataSource)
        query = begin(spark, url, source, target, checkpoint)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            # Afterwards the JVM is gone, and with it what it had to say.
            sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
