"""A question and its answer, through a topic. Needs a running server: pocketmq serve"""

import asyncio
import contextlib

from pocketmq import Message, Producer, PullConsumer, RequesterGone


async def answer(producer: Producer) -> None:
    async with PullConsumer("square", namesrv="127.0.0.1:9876", start="begin") as consumer:
        await consumer.subscribe("numbers")
        async for question in consumer:
            with contextlib.suppress(RequesterGone):  # an earlier run asked
                await producer.reply(question, str(int(question.body) ** 2).encode())


async def main() -> None:
    async with Producer("shop", namesrv="127.0.0.1:9876") as producer:
        answering = asyncio.create_task(answer(producer))
        reply = await producer.request(Message("numbers", b"12"), timeout=20.0)
        print("12² =", reply.body.decode())
        answering.cancel()


asyncio.run(main())
