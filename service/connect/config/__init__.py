"""The keys of connectors: what they mean, their checks and aliases, references to secrets."""
