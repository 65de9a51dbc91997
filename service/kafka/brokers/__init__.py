"""Brokers: the live gateways as Kafka's clients see them, and who leads a partition."""
