"""Object stores and metadata tables: the contract, and every backend."""
