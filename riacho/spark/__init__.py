"""Reads and writes topics with Spark: `format("riacho")` instead of `format("kafka")`.

from riacho.spark import RiachoDataSource

spark.dataSource.register(RiachoDataSource)
orders = (
    spark.read.format("riacho")
    .option("url", "http://127.0.0.1:8080")
    .option("subscribe", "orders")
    .load()
)
"""

from riacho.spark.source import RiachoDataSource

__all__ = ["RiachoDataSource"]
