"""API keys: their text, items and scopes, and which a caller may make; users with passwords."""
