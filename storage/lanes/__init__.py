"""Lanes at work: commits, their order, rolls, and commits to several lanes at once."""
