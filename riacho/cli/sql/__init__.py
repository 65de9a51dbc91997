"""The command `riacho sql`."""
