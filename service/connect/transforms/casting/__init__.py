"""Transforms of single values by their type: other types, and masks."""
