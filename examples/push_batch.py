"""Works on messages in batches, and acknowledges a part of each. Run send.py before."""

import asyncio

from pocketmq import ConsumedMessage, PushConsumer, ReconsumeLater

consumer = PushConsumer("archive", namesrv="127.0.0.1:9876", start="begin")
archived: set[bytes] = set()


@consumer.on("orders", "new", max_batch=100)
async def archive(messages: list[ConsumedMessage]) -> None:
    for message in messages:
        if not message.body.endswith(b"7") or message.reconsume_times > 0:
            archived.add(message.body)
            message.ack()  # done, whatever comes after
    if len(archived) == 1000:
        print("all archived")
        await consumer.shutdown()
    raise ReconsumeLater("the others come again in 1 s", delay_level=1)


asyncio.run(consumer.run())
