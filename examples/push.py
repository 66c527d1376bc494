"""Handle messages as they arrive, eight at a time; a failed one comes back. Run send.py first."""

import asyncio

from pocketmq import ConsumedMessage, PushConsumer, ReconsumeLater

consumer = PushConsumer("billing", namesrv="127.0.0.1:9876", start="begin", concurrency=8)
billed = asyncio.Event()


@consumer.on("orders", "paid || refunded")  # or sql="amount > 100"
async def bill(message: ConsumedMessage) -> None:
    if message.reconsume_times == 0:
        # Any exception has the message delivered again; this one says when, and makes no noise.
        raise ReconsumeLater("the till is closed", delay_level=1)
    print(message.keys, message.body.decode(), "after", message.reconsume_times, "retry")
    billed.set()


async def main() -> None:
    async with consumer:  # leaving it lets handlers end, and commits
        await billed.wait()  # or, for ever: await consumer.run()


asyncio.run(main())
