"""Members of Kafka's consumer protocol (KIP-848) in native groups."""
