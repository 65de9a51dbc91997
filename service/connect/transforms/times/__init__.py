"""Transforms of times, and the patterns in which Java writes them."""
