"""The TCP listener of Kafka's protocol: addresses, connections, and who is at their other end."""
