"""How much a caller may do: bytes, time, changes, failed logins, and calls that stay open."""
