"""Lanes: commits, their order, rolls, and commits to several lanes at once."""
