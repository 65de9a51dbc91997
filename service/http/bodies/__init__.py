"""Bodies of requests and responses: JSON, NDJSON and Arrow."""
