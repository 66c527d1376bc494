"""The push consumer without asyncio: handlers run in threads. Run send.py before."""

import time

from pocketmq import sync

consumer = sync.PushConsumer("shipping", namesrv="127.0.0.1:9876", start="begin", concurrency=8)


@consumer.on("orders", "paid || refunded")
def ship(message: sync.ConsumedMessage) -> None:
    time.sleep(0.1)  # a call that blocks holds up nobody else
    print(message.keys, message.body.decode())
    consumer.shutdown()


consumer.run()
