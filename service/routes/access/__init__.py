"""Routes about keys, ACLs and quotas."""
