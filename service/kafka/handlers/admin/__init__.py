"""Administration over Kafka's protocol: topics, settings, ACLs, quotas, users, transactions."""
