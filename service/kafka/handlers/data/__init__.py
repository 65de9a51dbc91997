"""Brokers, topics and records: Metadata, Produce, Fetch, ListOffsets, producer ids."""
