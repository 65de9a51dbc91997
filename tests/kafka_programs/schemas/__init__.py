"""Schemas and values that clients of several languages write and read through one gateway."""
