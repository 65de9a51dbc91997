"""How much a gateway takes on at once: bytes held, bytes sent, heavy work, sizes."""
