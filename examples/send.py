"""Sends one message, and a thousand in batches. Needs a running server: pocketmq serve"""

import asyncio

from pocketmq import BatchSendError, Message, Producer


async def main() -> None:
    async with Producer("shop", namesrv="127.0.0.1:9876") as producer:
        message = Message("orders", b"two coffees", tags="paid", keys=["o-1"])
        result = await producer.send(message)
        print(result.status.name, result.queue, result.queue_offset, result.msg_id)
        try:
            results = await producer.send_batch(
                [Message("orders", b"order %d" % i, tags="new") for i in range(1000)]
            )
            print(len(results), "more in", len({r.queue for r in results}), "queue(s)")
        except BatchSendError as error:  # what send raises is a SendError
            print(error, "- worth sending error.failed again" if error.retriable else "")


asyncio.run(main())
