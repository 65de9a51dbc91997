"""The object sink: topics as JSON, Avro, Parquet or raw files in a bucket, once, by their names."""
