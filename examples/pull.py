"""Reads a topic from its first message, and remembers where it stopped. Run send.py before."""

import asyncio

from pocketmq import PullConsumer


async def main() -> None:
    async with PullConsumer("audit", namesrv="127.0.0.1:9876", start="begin") as consumer:
        await consumer.assign("orders", tags="paid")
        # Long polls in the background; a poll waits for the first message, here up to 2 seconds.
        for message in await consumer.poll(max_messages=10, timeout=2.0):
            print(message.queue_id, message.queue_offset, message.keys, message.body.decode())
        # What was handed out is committed to the broker: the next run goes on after it.
        await consumer.commit()
        # `async for message in consumer:` would go on for ever.


asyncio.run(main())
