"""The messages of Kafka's protocol in our notation: a class for all versions of a message."""
