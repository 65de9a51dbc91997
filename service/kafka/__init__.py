"""The Kafka door: Kafka's protocol over TCP, on the same log, groups and security as HTTP."""
