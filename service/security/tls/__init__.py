"""TLS of `riacho serve`: files, contexts replaced while they serve, and who is at the other end."""
