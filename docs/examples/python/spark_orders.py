"""Reads "orders" with Spark, as a table and as a stream, and copies large ones exactly once.

spark_orders.py CHECKPOINT
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, get_json_object

from riacho.spark import RiachoDataSource

URL = os.environ.get("RIACHO_URL", "http://localhost:8080")

os.environ["PYSPARK_PYTHON"] = sys.executable  # Workers need Riacho, too.
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.dataSource.register(RiachoDataSource)

# A table: all current records, with the columns of Spark's Kafka source.
orders = spark.read.format("riacho").option("url", URL).option("subscribe", "orders").load()
print(", ".join(orders.columns))
amount = get_json_object(col("value").cast("string"), "$.amount").cast("int")
dear = orders.where(amount > 100).select(col("key").cast("string"), amount.alias("amount"))
for row in dear.orderBy("key").collect():
    print(row.key, row.amount)


def copy() -> None:
    """Copy records since the last run, as noted in the checkpoint, to "dear-orders"."""
    stream = spark.readStream.format("riacho").option("url", URL).option("subscribe", "orders")
    # Tasks may fail, and batches run twice. Each order is in the topic once nevertheless, and a
    # micro-batch is written completely or not at all.
    (
        stream.option("startingOffsets", "earliest")
        .load()
        .where(amount > 100)
        .select("key", "value")
        .writeStream.format("riacho")
        .option("url", URL)
        .option("topic", "dear-orders")
        .option("checkpointLocation", sys.argv[1])
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


copy()
copy()  # There is nothing new, so nothing is written.
copied = spark.read.format("riacho").option("url", URL).option("subscribe", "dear-orders").load()
print(copied.count(), "copied")
spark.stop()
