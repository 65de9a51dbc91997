"""Lines of files as records, and records as lines: what Kafka calls `FileStream`."""
