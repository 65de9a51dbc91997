"""Time, randomness and identifiers, and lengths of time as text."""
