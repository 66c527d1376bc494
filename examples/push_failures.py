"""Says which failures are tried again. Run send.py before; then `pocketmq dlq list parsing`."""

import asyncio

from pocketmq import PushConsumer
from pocketmq.errors import PayloadError

consumer = PushConsumer(
    "parsing",
    {"orders": "paid"},
    namesrv="127.0.0.1:9876",
    start="begin",
    dead_letter_on=(PayloadError,),  # at once: the body will never be different
    retry_delays={TimeoutError: (1, 5, 30)},  # three times, after so many seconds
)


async def main() -> None:
    async with consumer, await anext(consumer) as message:
        print(message.payload(dict))  # "two coffees" is not JSON


asyncio.run(main())
