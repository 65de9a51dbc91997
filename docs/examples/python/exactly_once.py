"""Exactly once: reads "payments", converts them, and writes "exactly-once".

exactly_once.py [die after N records [name of this copier]]

Start it several times, each with a name of its own: they share the partitions of "payments".
Kill any of them at any time: other copiers, or a restart, redo what it has not committed.
"""

import os
import sys
from contextlib import suppress

from riacho import Admin, Consumer, InvalidProducerEpoch, Producer, RiachoError, TopicExists

left = int(sys.argv[1]) if len(sys.argv) > 1 else -1
name = sys.argv[2] if len(sys.argv) > 2 else "copier-1"

with Admin() as admin, suppress(TopicExists):
    admin.create_topic("exactly-once", partitions=2)

with (
    Consumer(
        group_id="exactly-once",
        group_instance_id=name,  # A restart takes over at once …
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer,
    Producer(transactional_id=name) as producer,  # … and fences the old one.
):
    consumer.subscribe("payments")
    while records := consumer.poll(timeout_ms=3000, max_records=10):
        try:
            with producer.transaction():
                for record in records:
                    payment = record.json()
                    converted = {"cents": 100 * payment["amount"]}
                    producer.send("exactly-once", converted, key=record.key)
                    left -= 1
                    if left == 0:
                        os._exit(1)
                producer.send_offsets(consumer)
        except InvalidProducerEpoch:
            raise  # A newer copier has our name: stop.
        except RiachoError as error:
            # All of it happened or nothing. The committed offsets of the group say which.
            print("again from where the group is:", error, file=sys.stderr)
            consumer.seek_to_committed()
