"""Bytes of the log and data of Connect: Kafka's converters, and those of a schema registry."""
