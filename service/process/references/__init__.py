"""References to secrets: settings and configurations name a secret, and never hold it."""
