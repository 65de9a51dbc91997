"""The metadata table in one SQLite file."""
