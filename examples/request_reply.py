"""A question and its answer, through a topic. Needs a running server: pocketmq serve"""

import asyncio
from contextlib import suppress

from pocketmq import ConsumedMessage, Message, Producer, PushConsumer, RequesterGone

producer = Producer("shop", namesrv="127.0.0.1:9876")
consumer = PushConsumer("square", namesrv="127.0.0.1:9876", start="begin")


@consumer.on("questions")
async def answer(question: ConsumedMessage) -> None:
    if question.deadline is not None:  # else it is an ordinary message
        with suppress(RequesterGone):
            await producer.reply(question, str(int(question.body) ** 2).encode())


async def main() -> None:
    async with producer, consumer:
        reply = await producer.request(Message("questions", b"12"), timeout=20.0)
        print("12² =", reply.body.decode())


asyncio.run(main())
