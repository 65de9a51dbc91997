"""Protobuf for Connect, as Confluent's `ProtobufData` maps schemas and values."""
