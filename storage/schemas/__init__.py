"""Schemas and the data that they describe: pure, and without the registry."""
