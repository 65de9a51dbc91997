"""The calls of Kafka Connect's REST API, at the root and below /connect."""
