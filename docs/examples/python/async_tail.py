"""Prints what arrives in "payments" from now on, ten records, without blocking a thread."""

import asyncio

from riacho import AsyncConsumer


async def main() -> None:
    async with AsyncConsumer(auto_offset_reset="latest") as consumer:
        consumer.subscribe("payments")
        while not consumer.assignment():
            await consumer.poll(100)  # Finds the partitions,
        for topic, partition in consumer.assignment():
            await consumer.position(topic, partition)  # and their ends.
        print("ready", flush=True)
        left = 10
        async for record in consumer:
            print(record.key_text(), record.json(), flush=True)
            left -= 1
            if left == 0:
                break


asyncio.run(main())
