"""Reads: finding and reading the stored slices at an offset."""
