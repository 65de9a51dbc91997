"""Who calls, what they may do, how much of it, and a record of it: the same for every door."""
