"""Commands about API keys, ACLs and quotas, and who the caller is."""
