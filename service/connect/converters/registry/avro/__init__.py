"""Avro for Connect, as Confluent's `AvroData` maps schemas and values in both directions."""
