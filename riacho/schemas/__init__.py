"""Schemas: the registry's calls, and values that are written and read by schemas."""
