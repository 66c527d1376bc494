"""A message that is seen only if a database row was written. Needs: pocketmq serve"""

import asyncio

from pocketmq import Message, MessageExt, TransactionProducer, TransactionState

orders: set[str] = set()  # stands for a database table


async def check(message: MessageExt) -> TransactionState:
    """Asked by the broker when it was not told: the truth is in the database."""
    known = message.keys[0] in orders
    return TransactionState.COMMIT if known else TransactionState.ROLLBACK


async def main() -> None:
    async with TransactionProducer("shop", check=check, namesrv="127.0.0.1:9876") as producer:
        message = Message("orders", b"two coffees", keys=["o-1"])
        async with producer.transaction(message) as transaction:
            orders.add("o-1")
        assert transaction.state is not None  # the block has ended
        print(transaction.half.status.name, transaction.state.name)


asyncio.run(main())
