"""Kafka's wire protocol: messages, and the code that reads and writes them; no sockets."""
