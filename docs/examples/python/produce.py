"""Writes records to the topic "payments", which it creates if need be."""

from contextlib import suppress

from riacho import Admin, Producer, TopicExists

with Admin() as admin, suppress(TopicExists):
    admin.create_topic("payments", partitions=3)

with Producer() as producer:
    # `send` returns at once; records of one key keep their order.
    producer.send("payments", {"amount": 12, "currency": "BRL"}, key="ana")
    producer.send(
        "payments", {"amount": 7, "currency": "BRL"}, key="bia", headers={"source": "web"}
    )
    # `result` waits until the record is durable, or raises why it is not.
    written = producer.send("payments", {"amount": 30, "currency": "BRL"}, key="ana").result()
    print(f"partition {written.partition}, offset {written.offset}")
