"""Records to HTTP servers and from them; only to addresses that connectors may reach."""
