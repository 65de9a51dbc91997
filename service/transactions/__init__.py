"""Producer ids, transactions and atomic calls."""
