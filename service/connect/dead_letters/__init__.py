"""What is in a topic of dead letters, and sending it again."""
