"""Riacho beside others: the same records in the same run, all taking turns.

    python -m benchmarks.side_by_side [produce|fetch|latency|partitions|targets ...]
        [--rounds 3] [--seconds 2] [--peers kafka,nats,...] [--json FILE]

Every workload has `rounds` rounds. In a round each peer has a turn of `seconds`, in an order that
moves on by one from round to round. Tables show the median of the rounds, the least and the most,
and ratios: ours divided by theirs, computed for each round, then the median of these.

- All servers of a table run from its beginning to its end, so that a virtual machine is as warm
  as it gets. Their processor time while idle is measured, and shown under the first table.
- After each turn the page cache is written to the disk (`sync`), so that no peer waits for the
  writes of another.
- `durability` says what an acknowledgement means. Compare only peers with the same.
- A peer that is missing, or fails, is named under the table, with the reason.
"""
