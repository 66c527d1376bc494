"""Consumes each queue in its order, in a loop of its own. Run send.py before."""

import asyncio

from pocketmq import PushConsumer


async def main() -> None:
    async with PushConsumer(
        "ledger", {"orders": "new"}, namesrv="127.0.0.1:9876", start="begin", orderly=True
    ) as consumer:
        seen = 0
        async for message in consumer:
            async with message:  # done at the end of the block; an exception has it come again
                seen += 1
                print(message.queue.queue_id, message.queue_offset, message.body.decode())
            if seen == 1000:
                break


asyncio.run(main())
