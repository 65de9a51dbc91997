"""Classic groups of Kafka's clients."""
