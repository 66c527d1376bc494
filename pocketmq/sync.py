"""The clients for scripts without asyncio: the same classes with blocking calls.

    from pocketmq import Message, sync

    with sync.Producer("orders", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("orders", b"..."))

    consumer = sync.PushConsumer("billing", namesrv="127.0.0.1:9876")

    @consumer.on("orders")
    def bill(message: sync.ConsumedMessage) -> None:  # in a thread
        ...

    consumer.run()

Nothing is implemented twice: each class is generated from its asyncio class (pocketmq.sync_client),
with the same options, docstrings and errors. Several threads may share a client. Type checkers read
sync.pyi, which scripts/write_sync_stub.py writes.
"""

from __future__ import annotations

from pocketmq import sync_push
from pocketmq.client import admin
from pocketmq.client.consumer import pull
from pocketmq.client.producer import producer, transaction
from pocketmq.sync_client import Later, made_from
from pocketmq.sync_pull import PullClient
from pocketmq.sync_push import ConsumedMessage, PushClient

__all__ = [
    "Admin",
    "ConsumedMessage",
    "Later",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]

Admin = made_from(admin.Admin)
Producer = made_from(producer.Producer)
PullConsumer = made_from(pull.PullConsumer, PullClient)
PushConsumer = made_from(sync_push.PushConsumer, PushClient)
TransactionProducer = made_from(transaction.TransactionProducer)
