"""Children that are alike but for their unique ids, and those that only look so."""

from __future__ import annotations

import random

from pocketmq.broker.broker import Broker
from pocketmq.message.record import Record
from tests.broker.batch.batches import Child, batch, send
from tests.broker.conftest import Client

# Property texts as they come, ! for 0x01 and ; for 0x02: not all are such as clients write.
TEXTS = [
    text.replace("!", "\x01").replace(";", "\x02")
    for text in (
        "UNIQ_KEY!1;TAGS!a;",
        "UNIQ_KEY!2;TAGS!a;",
        "UNIQ_KEY!3;TAGS!b;",
        "UNIQ_KEY!;TAGS!b;",  # no id
        "UNIQ_KEY!4;TAGS!b",
        "xUNIQ_KEY!5;TAGS!b;",  # another property
        "xUNIQ_KEY!6;TAGS!b;",
        "UNIQ_KEY!7",
        "UNIQ_KEY!8;",
        "TAGS!a;UNIQ_KEY!9;",
        "TAGS!a;UNIQ_KEY!10",
        "TAGS!aUNIQ_KEY!11;",  # within a value
        "UNIQ_KEY!12;TAGS!a;UNIQ_KEY!13;TAGS!b;",
        "UNIQ_KEY!14;TAGS!a;UNIQ_KEY!;TAGS!b;",
        "TAGS!c;",
        "TAGS!d;",
        "",
        "UNIQ_KEY!DELAY;TAGS!a;",
        "UNIQ_KEY!15;DELAY!0;TAGS!a;",
        "UNIQ_KEY!16;k!DELAY;TAGS!a;",
        "UNIQ_KEY!TAGS!z;TAGS!a;",
    )
]


def child(topic: str, queue_id: int, text: str) -> Child:
    made = send(topic, queue_id=queue_id)
    made.header.properties = text  # type: ignore[union-attr]
    return made


async def test_what_is_stored_is_that_of_single_sends(
    broker: Broker, client: Client, topic: str
) -> None:
    await client.send(topic, queue_id=2)  # the topic is known from here on
    texts = [*TEXTS, *TEXTS[::-1], *random.Random(5521).sample(TEXTS * 4, 80)]
    for text in texts:
        (answer,) = await batch(client, [child(topic, 0, text)])
        assert answer.code == 0
    answers = await batch(client, [child(topic, 1, text) for text in texts])
    assert {answer.code for answer in answers} == {0}

    stored = []
    for queue_id in 0, 1:
        queue = broker.store.queues[topic][queue_id]
        codes = [entry[2] for entry in queue.read(0, len(texts))]
        records: list[Record] = []
        while len(records) < len(texts):
            records += await client.pulled(topic, len(records), queue_id=queue_id)
        ids = [record.properties.pop("UNIQ_KEY") for record in records]
        stored.append((codes, [record.properties for record in records]))
        # Who brought an id keeps it, as its answer says; all others get one of their own.
        given = {name for name in ids if len(name) < 16}
        made = [name for name in ids if len(name) >= 16]
        assert given == {*map(str, range(1, 17)), "DELAY", "TAGS\x01z"} - {"5", "6", "11", "12"}
        assert len(set(made)) == len(made)
        if queue_id == 1:
            assert [answer.ext_fields["transactionId"] for answer in answers] == ids
    assert stored[0] == stored[1]
