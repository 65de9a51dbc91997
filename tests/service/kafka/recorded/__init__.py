"""What Apache Kafka answers to wrong requests, recorded, and our own answers to the same."""
