"""A streaming query in a process of its own, to be killed: `read_until_killed URL TOPIC FOLDER`."""

import sys
import time
from typing import TYPE_CHECKING

from riacho.spark import RiachoDataSource
from service.jobs.runners.spark_session import session
from tests.riacho.spark.queries import is_too_busy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def begin(
    spark: "SparkSession", url: str, topic: str, folder: str, *, now: bool
) -> "StreamingQuery":
    """Start the query that copies a topic to files, ten records at a time or all there are."""
    spark.dataSource.register(RiachoDataSource)
    frame = (
        spark.readStream.format("riacho")
        .option("url", url)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1000" if now else "10")
        .load()
    )
    writer = (
        frame.selectExpr("partition", "offset", "cast(value AS string) AS value")
        .writeStream.format("json")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    return writer.trigger(availableNow=True).start() if now else writer.start()


def main(url: str, topic: str, folder: str) -> None:
    with session("local[2]") as spark:
        query = begin(spark, url, topic, folder, now=False)
        while query.lastProgress is None:
            error = query.exception()
            if is_too_busy(error):
                query = begin(spark, url, topic, folder, now=False)
            elif error is not None:
                raise SystemExit(str(error))
            time.sleep(0.05)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
