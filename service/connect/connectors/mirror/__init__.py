"""The mirror: topics of a Kafka cluster, copied with their partitions, configs and groups."""
