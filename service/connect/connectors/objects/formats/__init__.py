"""What the files of the object sink are: JSON lines, Avro, Parquet, raw bytes."""
