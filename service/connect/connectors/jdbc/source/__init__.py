"""Rows of a database as records: which tables, with which statements, from which position."""
