"""Converters of values that name their schema: Avro, JSON Schema and Protobuf, by our registry."""
