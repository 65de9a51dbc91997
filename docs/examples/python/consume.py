"""Prints the records of "payments", and goes on where the last run stopped.

consume.py [file that remembers the offsets]
"""

import json
import sys
from pathlib import Path

from riacho import Admin, Consumer

TOPIC = "payments"
memory = Path(sys.argv[1] if len(sys.argv) > 1 else "payments.offsets")
offsets = json.loads(memory.read_text()) if memory.exists() else {}

with Admin() as admin:
    ends = {info.partition: info.high_watermark for info in admin.partitions(TOPIC)}

with Consumer(auto_offset_reset="earliest") as consumer:
    consumer.assign([(TOPIC, partition) for partition in ends])
    for partition, offset in offsets.items():
        consumer.seek(TOPIC, int(partition), offset)
    # Ends with the last record there was at the start; `while True` would go on for ever.
    while any(consumer.position(TOPIC, partition) < end for partition, end in ends.items()):
        for record in consumer.poll(timeout_ms=1000):
            print(record.partition, record.offset, record.key_text(), record.json())
            offsets[str(record.partition)] = record.offset + 1
        # First the work, then the offset: a crash in between repeats records and loses none.
        memory.write_text(json.dumps(offsets))
