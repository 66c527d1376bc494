"""The same clients without asyncio, for scripts. Needs a running server: pocketmq serve"""

from pocketmq import Message, sync

with sync.Producer("shop", namesrv="127.0.0.1:9876") as producer:
    result = producer.send(Message("orders", b"two coffees"))
    print(result.status.name, result.queue)

with sync.PullConsumer("audit", namesrv="127.0.0.1:9876", start="begin") as consumer:
    consumer.assign("orders")
    for message in consumer.poll(max_messages=10, timeout=2.0):
        print(message.queue_offset, message.body.decode())
