"""Clients of the schema registry, and what its table holds."""
