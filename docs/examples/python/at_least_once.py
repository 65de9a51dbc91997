"""At least once: first the work, then the commit. A crash repeats work, and loses none.

at_least_once.py [die after N records]
"""

import os
import sys
from contextlib import suppress

from riacho import Admin, Consumer, Producer, TopicExists

left = int(sys.argv[1]) if len(sys.argv) > 1 else -1

with Admin() as admin, suppress(TopicExists):
    admin.create_topic("at-least-once", partitions=2)

with (
    Consumer(
        group_id="at-least-once",
        group_instance_id="copier-1",  # A restart takes over at once.
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer,
    # Idempotent: it does not write a batch twice. But a restarted program sends records again.
    Producer() as producer,
):
    consumer.subscribe("payments")
    while records := consumer.poll(timeout_ms=3000, max_records=10):
        for record in records:
            producer.send("at-least-once", record.value, key=record.key).result()
            left -= 1
            if left == 0:
                os._exit(1)
        consumer.commit()
