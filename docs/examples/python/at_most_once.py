"""At most once: first the commit, then the work. A crash loses work, and repeats none.

at_most_once.py [die after N records]
"""

import os
import sys
from contextlib import suppress

from riacho import Admin, Consumer, Producer, TopicExists

left = int(sys.argv[1]) if len(sys.argv) > 1 else -1

with Admin() as admin, suppress(TopicExists):
    admin.create_topic("at-most-once", partitions=2)

with (
    Consumer(
        group_id="at-most-once",
        group_instance_id="copier-1",  # A restart takes over at once.
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer,
    # Sent once: if the answer is lost, it is not sent again.
    Producer(enable_idempotence=False, retries=0) as producer,
):
    consumer.subscribe("payments")
    while records := consumer.poll(timeout_ms=3000, max_records=10):
        consumer.commit()
        for record in records:
            producer.send("at-most-once", record.value, key=record.key).result()
            left -= 1
            if left == 0:
                os._exit(1)
