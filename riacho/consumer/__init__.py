"""Consumers: positions, fetches, membership in a group, commits."""
