"""Groups: members of all kinds, committed offsets, and what tools ask of groups."""
