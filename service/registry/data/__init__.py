"""Data against schemas, for the edge: many values at once, and why some do not fit. Pure."""
