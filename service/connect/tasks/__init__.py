"""The work of tasks: items, leases, offsets, the loops of sources and sinks, errors."""
