"""Topics: names, partitions, configuration, and what is left of deleted ones."""
