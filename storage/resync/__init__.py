"""Bringing a zone up to date, and verifying that zones in sync hold everything."""
