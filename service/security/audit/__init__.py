"""The record of refusals and administrative changes: lines in a log, and records in a topic."""
