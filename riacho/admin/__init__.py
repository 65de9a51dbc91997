"""Administration of topics, groups, transactions and the cluster."""
