"""Running tasks: planned, taken by lease, each in a loop; and the processes that do it."""
