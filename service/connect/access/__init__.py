"""What tasks may do with the log: as whom, which topics they create, what they ask besides."""
