"""Limits of a gateway: bytes held, bytes sent, heavy work, sizes."""
