"""Records, schemas and values as Kafka Connect defines them: pure, and known to all of Connect."""
