"""Kafka's 16 single message transforms and 3 predicates, as pure functions."""
