"""Kafka's `JsonConverter`: values as JSON, with or without their schema."""
