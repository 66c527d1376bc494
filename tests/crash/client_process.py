"""A client as a process: one producer and one consumer of a group, telling what they do.

    python -m tests.crash.client_process NAMESRV TOPIC GROUP

It prints `ready` when it begins, `sent BODY QUEUE OFFSET` for each acknowledged message and
`got BODY` for each received one. Every outage is for its client library to get over: this
program only sends again what was not acknowledged, as any application would.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message

# Between two sends, seconds: traffic all the time, but not so much that it slows the servers.
PACE = 0.02


async def send(producer: Producer, topic: str) -> None:
    number = 0
    while True:
        body = f"client{os.getpid()}-{number}"
        try:
            result = await producer.send(Message(topic, body.encode()), timeout=1.0)
        except RemotingError as error:
            print(f"not sent: {error}", flush=True)
        else:
            number += 1
            print(f"sent {body} {result.queue.queue_id} {result.queue_offset}", flush=True)
        await asyncio.sleep(PACE)


async def receive(consumer: PullConsumer) -> None:
    async for message in consumer:
        print(f"got {message.body.decode()}", flush=True)


async def main(namesrv: str, topic: str, group: str) -> None:
    print("ready", flush=True)
    async with (
        Producer(f"{group}_producer", namesrv=namesrv) as producer,
        PullConsumer(group, namesrv=namesrv, start="begin", auto_commit_interval=0.2) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(send(producer, topic))
        await consumer.subscribe(topic)
        tasks.create_task(receive(consumer))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
