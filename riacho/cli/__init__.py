"""The command `riacho`."""
