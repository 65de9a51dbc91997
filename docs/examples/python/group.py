"""Shares "payments" with all running copies of this program: each record is printed by one.

group.py [name of the group]
"""

import signal
import sys

from riacho import CommitFailed, Consumer

group = sys.argv[1] if len(sys.argv) > 1 else "accounting"
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Leaves the group, by the end of `with`.

with Consumer(group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
    consumer.subscribe(
        "payments",
        on_assigned=lambda partitions: print("mine:", *partitions, file=sys.stderr),
        on_revoked=lambda partitions: print("no longer mine:", *partitions, file=sys.stderr),
    )
    while True:
        records = consumer.poll(timeout_ms=1000)
        for record in records:
            print(record.partition, record.offset, record.key_text(), record.json(), flush=True)
        # First the work, then the commit: a crash in between repeats records and loses none.
        try:
            if records:
                consumer.commit()
        except CommitFailed as error:
            print("another member reads it again:", error, file=sys.stderr)
