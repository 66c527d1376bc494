"""`python -m bench.rolling.consumer`: one member of the consumer groups, as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic_ns

import msgspec

from bench.rolling.journal import Journal
from bench.rolling.load import BROKERS, STAMP, Kind
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvent
from pocketmq.client.consumer.push import PushConsumer


class Settings(msgspec.Struct):
    """What the process is told; `kinds`: the groups it is a member of."""

    member: str
    namesrv: str
    directory: str
    kinds: list[Kind]
    commit_interval: float


def handler(journal: Journal) -> Callable[[ConsumedMessage], None]:
    """Writes down each message, and that is all its work."""
    brokers = {name: 256 * number for number, name in enumerate(BROKERS)}
    stamp = STAMP.unpack_from

    def handle(message: ConsumedMessage) -> None:
        producer, seq, key, key_seq = stamp(message.body)
        queue = brokers[message.broker_name] + message.queue_id
        sent_back = message.reconsume_times
        journal.add(
            monotonic_ns(), message.queue_offset, queue, producer, seq, key, key_seq, sent_back
        )

    return handle


def tell(event: ConsumerEvent) -> None:
    logging.info("%s", event)


async def main(settings: Settings) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with AsyncExitStack() as stack:
        for kind in settings.kinds:
            path = Path(settings.directory, f"handled-{kind}-{settings.member}")
            consumer = PushConsumer(
                str(kind),
                {str(kind): "*"},
                handler=handler(stack.enter_context(Journal(path))),
                namesrv=settings.namesrv,
                start="begin",
                orderly=kind is Kind.ORDERED,
                commit_interval=settings.commit_interval,
                instance_name=f"{settings.member}-{kind}",
                on_event=tell,
            )
            await stack.enter_async_context(consumer)
        print("ready", flush=True)
        await ended.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Settings)))
