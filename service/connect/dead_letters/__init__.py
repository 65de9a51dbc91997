"""What is in a dead letter topic, and sending it again."""
