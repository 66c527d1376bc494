"""A client as a process: one producer and one consumer of a group, telling what they do.

    python -m tests.crash.client_process NAMESRV TOPIC GROUP

It prints `ready` once it runs, `sent BODY QUEUE OFFSET` for each acknowledged message and
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


async def subscribe(consumer: PullConsumer, topic: str) -> None:
    """At the start of a client that finds no name server, asking again is the application's."""
    while True:
        try:
            await consumer.subscribe(topic)
        except RemotingError as error:
            print(f"not subscribed: {error}", flush=True)
            await asyncio.sleep(0.1)
        else:
            return


async def main(namesrv: str, topic: str, group: str) -> None:
    async with (
        Producer(f"{group}_producer", namesrv=namesrv) as producer,
        PullConsumer(group, namesrv=namesrv, start="begin", auto_commit_interval=0.2) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        print("ready", flush=True)
        tasks.create_task(send(producer, topic))
        await subscribe(consumer, topic)
        tasks.create_task(receive(consumer))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
