"""API keys: their text, their items, their scopes, and which keys a caller may make."""
