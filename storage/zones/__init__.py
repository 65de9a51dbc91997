"""Zones: the named object stores that hold copies, and what is known of each."""
