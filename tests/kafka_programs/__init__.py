"""Programs that others wrote for Kafka, unchanged, on a gateway of ours."""
