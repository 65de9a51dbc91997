"""The log over object stores and a metadata table."""
