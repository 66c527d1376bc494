"""A name server and a broker inside this process, on free ports, gone when the block ends."""

import asyncio

from pocketmq import Message, Producer, PullConsumer
from pocketmq.embedded import EmbeddedServer


async def main() -> None:
    async with EmbeddedServer() as server:
        print("any RocketMQ client may connect to", server.namesrv)
        async with Producer("tests", namesrv=server.namesrv) as producer:
            await producer.send(Message("hello", b"world"))
        async with PullConsumer("tests", namesrv=server.namesrv, start="begin") as consumer:
            await consumer.assign("hello")
            for message in await consumer.poll(timeout=2.0):
                print(message.topic, message.body.decode())


asyncio.run(main())
