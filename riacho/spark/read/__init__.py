"""Reading topics with Spark, through the gateway or from the bucket."""
