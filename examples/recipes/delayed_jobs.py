"""Jobs that run later, as with the `eta` of Celery: at a time, up to three days ahead.

    pip install pocketmq
    export NAMESRV_ADDR=127.0.0.1:9876
    python delayed_jobs.py work                   # as many of these as you like
    python delayed_jobs.py remind 60 "call Ada"   # in a minute

A job whose worker dies, or that raises, is delivered again, so let a job be safe to run twice.
`producer.recall(topic, result.recall_handle)` cancels one that is not due yet, if the broker has
recallMessageEnable=true.
"""

import asyncio
import sys
from datetime import timedelta

import msgspec

from pocketmq import ConsumedMessage, Message, Producer, PushConsumer


class Reminder(msgspec.Struct):
    text: str


consumer = PushConsumer("workers", start="begin", concurrency=8)


@consumer.on("reminders", payload=Reminder)
async def remind(_: ConsumedMessage, reminder: Reminder) -> None:
    print("reminder:", reminder.text, flush=True)


async def remind_later(producer: Producer, text: str, delay: timedelta) -> str | None:
    """Return the handle to cancel it with."""
    body = msgspec.json.encode(Reminder(text))
    result = await producer.send(Message("reminders", body, delay=delay))
    return result.recall_handle


async def main(command: str, *arguments: str) -> None:
    if command == "work":
        await consumer.run()  # until SIGTERM: then jobs that have begun may end
    else:
        seconds, text = arguments
        async with Producer("shop") as producer:
            await remind_later(producer, text, timedelta(seconds=float(seconds)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
