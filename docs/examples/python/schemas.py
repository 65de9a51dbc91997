"""Writes and reads the topic "sales" by an Avro schema, which it registers."""

import datetime as dt
import json
from contextlib import suppress

from riacho import (
    Admin,
    AvroDeserializer,
    AvroSerializer,
    Consumer,
    InvalidRecord,
    Producer,
    SchemaRegistry,
    TopicExists,
)

SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "amount", "type": "int"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}

with Admin() as admin, suppress(TopicExists):
    admin.create_topic("sales")

with SchemaRegistry() as registry:
    serializer = AvroSerializer(registry, json.dumps(SALE))
    with Producer(value_serializer=serializer) as producer:
        producer.send("sales", {"amount": 12, "day": dt.date(2026, 1, 31)}).result()
        try:
            producer.send("sales", {"amount": "many", "day": dt.date(2026, 1, 31)})
        except InvalidRecord as error:
            print("not sent:", error)

    decode = AvroDeserializer(registry)
    with Consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("sales")
        for record in consumer.poll(timeout_ms=10_000):
            print(decode(record))
