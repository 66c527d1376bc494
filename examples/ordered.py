"""Messages of one order stay in order, and travel in batches. Needs: pocketmq serve"""

import asyncio

from pocketmq import Message, Producer


async def main() -> None:
    # What is posted waits 5 ms for company; a key keeps its messages in one queue, in order.
    async with Producer("shop", namesrv="127.0.0.1:9876", linger_ms=5) as producer:
        posted = [
            await producer.post(Message("orders", f"{order} {step}".encode()), key=order)
            for step in ("new", "paid", "sent")
            for order in ("o-1", "o-2", "o-3")
        ]
        for each in posted:
            result = await each
            print(result.queue.queue_id, result.queue_offset, result.status.name)


asyncio.run(main())
