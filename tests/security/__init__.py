"""Who may do what, over all routes, hosts and gateways."""
