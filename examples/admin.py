"""Creates a topic and a group, and watches the group's lag. Needs: pocketmq serve"""

import asyncio

from pocketmq import Admin, Message, Producer


async def main() -> None:
    namesrv = "127.0.0.1:9876"
    async with Admin(namesrv=namesrv) as admin, Producer("shop", namesrv=namesrv) as producer:
        print("created on", await admin.create_topic("invoices", queues=2))
        await admin.create_group("billing")
        await producer.send_batch([Message("invoices", b"%d" % i) for i in range(5)])
        await admin.reset_offsets("billing", "invoices", "begin")
        for queue, bounds in (await admin.topic_stats("invoices")).offset_table.items():
            print(queue.broker_name, queue.queue_id, "holds", bounds.max_offset - bounds.min_offset)
        print("behind by", await admin.lag("billing", "invoices"))
        await admin.reset_offsets("billing", "invoices", "end")
        print("behind by", await admin.lag("billing", "invoices"))


asyncio.run(main())
