"""`pocketmq dlq`: dead letters are listed, and sent again once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.conftest import Call
from tests.cli.running import TIMEOUT
from tests.dashboard.dead_letters import bury


class Handler:
    """Refuses every message until `healthy` is set; `seen` holds those it took."""

    def __init__(self) -> None:
        self.healthy = False
        self.seen: asyncio.Queue[ConsumedMessage] = asyncio.Queue()

    async def __call__(self, message: ConsumedMessage) -> None:
        if not self.healthy:
            raise ValueError("refused")
        self.seen.put_nowait(message)

    async def taken(self) -> ConsumedMessage:
        async with asyncio.timeout(TIMEOUT):
            return await self.seen.get()


@asynccontextmanager
async def failing(
    namesrv: str, group: str, topic: str, bodies: list[bytes]
) -> AsyncIterator[Handler]:
    """A consumer that has made a dead letter of each body, and still runs."""
    handler = Handler()
    async with Admin(namesrv=namesrv) as admin, Producer("PG", namesrv=namesrv) as producer:
        await admin.create_topic(topic, queues=1)
        for body in bodies:
            message = Message(topic, body, tags="paid", keys=["o-1"], properties={"shop": "7"})
            await producer.send(message)
        consumer = PushConsumer(group, namesrv=namesrv, start="begin", max_reconsume_times=0)
        consumer.on(topic)(handler)
        dead = MessageQueue(f"%DLQ%{group}", "broker-a", 0)
        async with consumer:
            async with asyncio.timeout(TIMEOUT):
                # The broker creates the topic with the first dead letter; no event tells.
                while dead.topic not in await admin.topics():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while await admin.max_offset(dead) < len(bodies):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            handler.healthy = True
            yield handler


async def test_dead_letters_are_listed_and_sent_to_their_group_again(
    namesrv: str, call: Call
) -> None:
    async with failing(namesrv, "billing", "bills", [b"a", b"b"]) as handler:
        listed = (await asyncio.to_thread(call, "dlq", "list", "billing", "--json")).rows
        assert [row["body"] for row in listed] == ["a", "b"]
        assert {row["originTopic"] for row in listed} == {"bills"}
        table = (await asyncio.to_thread(call, "dlq", "list", "billing")).out
        assert "ORIGIN TOPIC" in table
        groups = (await asyncio.to_thread(call, "dlq", "list", "--json")).rows
        assert {"group": "billing", "deadLetters": 2, "sentAgain": 0} in groups

        sent = await asyncio.to_thread(call, "dlq", "resend", "billing", "--count", "1")
        assert sent == (ExitCode.OK, "sent 1 dead letter again to group billing\n", "")
        assert (await handler.taken()).body == b"a"
        left = (await asyncio.to_thread(call, "dlq", "list", "billing", "--json")).rows
        assert [row["body"] for row in left] == ["b"]
        await asyncio.to_thread(call, "dlq", "resend", "billing")
        assert (await handler.taken()).body == b"b"

        none = await asyncio.to_thread(call, "dlq", "resend", "billing")
        assert "no dead letters left to resend" in none.err
        everything = (
            await asyncio.to_thread(call, "dlq", "list", "billing", "--all", "--json")
        ).rows
        assert [row["body"] for row in everything] == ["a", "b"]
        # One of them by its id, although it was sent again before.
        await asyncio.to_thread(call, "dlq", "resend", "billing", "--id", everything[1]["msgId"])
        assert (await handler.taken()).body == b"b"


async def test_a_single_dead_letter_counts_where_it_is_the_oldest_one_left(
    namesrv: str, call: Call
) -> None:
    async with failing(namesrv, "charging", "charges", [b"a", b"b"]) as handler:
        first, second = (await asyncio.to_thread(call, "dlq", "list", "charging", "--json")).rows
        sent = await asyncio.to_thread(call, "dlq", "resend", "charging", "--id", second["msgId"])
        assert sent.err == (
            "1 dead letter stays in the list, because older ones of the queue are left; a "
            "resend of all sends it once more\n"
        )
        assert (await handler.taken()).body == b"b"
        sent = await asyncio.to_thread(call, "dlq", "resend", "charging", "--id", first["msgId"])
        assert sent.err == ""
        assert (await handler.taken()).body == b"a"
        left = (await asyncio.to_thread(call, "dlq", "list", "charging", "--json")).rows
        assert [row["body"] for row in left] == ["b"]


async def test_dead_letters_are_sent_as_new_messages_of_their_topic(
    namesrv: str, call: Call
) -> None:
    async with failing(namesrv, "shipping", "shipments", [b"a"]) as handler:
        sent = await asyncio.to_thread(call, "dlq", "resend", "shipping", "--as-new")
        assert sent.out == "sent 1 dead letter again as new messages of shipments\n"
        message = await handler.taken()
        assert (message.body, message.tags, message.keys) == (b"a", "paid", ("o-1",))
        assert message.properties["shop"] == "7"
        assert (message.topic, message.reconsume_times) == ("shipments", 0)


def test_a_group_without_dead_letters(call: Call) -> None:
    call("topics", "create", "quiet")
    call("pull", "quiet", "-g", "calm")
    assert call("dlq", "list", "calm").err == ("group calm has no dead letters left to resend\n")
    assert call("dlq", "resend", "calm").code == ExitCode.OK
    missing = call("dlq", "resend", "calm", "--id", "0" * 32)
    assert missing.code == ExitCode.FAILURE
    assert "no dead letter with the id" in missing.err
    assert call("dlq", "resend", "nobody").code == ExitCode.UNAVAILABLE


class Unknown(LookupError):
    """A customer that there is not."""


async def test_dead_letters_say_why_they_died_and_are_chosen_by_it(
    namesrv: str, call: Call
) -> None:
    again: asyncio.Queue[bytes] = asyncio.Queue()

    async def refuse(message: ConsumedMessage) -> None:
        if message.reconsume_times:
            again.put_nowait(message.body)
            return
        if message.tags == "old":
            raise Unknown(f"customer {message.body.decode()}\nis Unknown")
        raise TimeoutError("the bank is away")

    async def run(*words: str) -> tuple[str, str, list[str]]:
        result = await asyncio.to_thread(call, "dlq", *words)
        assert result.code == ExitCode.OK
        return (
            result.out,
            result.err,
            [row["body"] for row in result.rows] if "--json" in words else [],
        )

    async with Admin(namesrv=namesrv) as admin, Producer("PG", namesrv=namesrv) as producer:
        await admin.create_topic("claims", queues=1)
        for number, tag in enumerate(("old", "new", "old", "new")):
            message = Message("claims", b"%d" % number, tags=tag, keys=[f"k{number}"])
            await producer.send(message)
        consumer = PushConsumer(
            "claiming", namesrv=namesrv, start="begin", dead_letter_on=(LookupError, TimeoutError)
        )
        consumer.on("claims")(refuse)
        dead = MessageQueue("%DLQ%claiming", "broker-a", 0)
        async with consumer:
            async with asyncio.timeout(TIMEOUT):
                while dead.topic not in await admin.topics():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while await admin.max_offset(dead) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            client_id = consumer.client_id
            table, _, _ = await run("list", "claiming", "--tag", "old")
            assert "Unknown: customer 0 is Unknown" in table
            assert client_id in table
            assert "the bank" not in table
            rows = (await asyncio.to_thread(call, "dlq", "list", "claiming", "--json")).rows
            assert [row["reason"] for row in rows][1] == "the bank is away"
            assert rows[0]["exception"] == f"{__name__}.Unknown"
            assert {row["consumer"] for row in rows} == {client_id}

            for words, bodies in (
                (("--reason", "BANK"), ["1", "3"]),
                (("--exception", "Unknown"), ["0", "2"]),
                (("--exception", f"{__name__}.Unknown"), ["0", "2"]),
                (("--exception", "LookupError"), []),
                (("--key", "k2", "--tag", "old"), ["2"]),
                (("--key", "k2", "--tag", "new"), []),
                (("--from", "-1h"), ["0", "1", "2", "3"]),
                (("--until", "-1h"), []),
            ):
                assert (await run("list", "claiming", "--json", *words))[2] == bodies, words
            nothing = await run("resend", "claiming", "--tag", "none")
            assert nothing[1] == "group claiming has no such dead letters left to resend\n"

            dry = await run("resend", "claiming", "--reason", "bank", "--dry-run")
            assert dry[0].count("TimeoutError: the bank is away") == 2
            assert dry[1] == "2 dead letters would be sent again to group claiming\n"
            sent = await run("resend", "claiming", "--reason", "bank")
            assert sent[0] == "sent 2 dead letters again to group claiming\n"
            assert sent[1].startswith("2 dead letters stay in the list, because older ones")
            async with asyncio.timeout(TIMEOUT):
                # As often as they were sent: not by the dry run.
                assert {await again.get(), await again.get()} == {b"1", b"3"}
            # The oldest is sent: it leaves the list, and the next one of another kind stays.
            sent = await run("resend", "claiming", "--exception", "Unknown")
            assert sent[1].startswith("1 dead letter stays in the list")
            async with asyncio.timeout(TIMEOUT):
                assert {await again.get(), await again.get()} == {b"0", b"2"}
            assert again.empty()
            assert (await run("list", "claiming", "--json"))[2] == ["1", "2", "3"]
    chosen = await asyncio.to_thread(call, "dlq", "list", "--tag", "old")
    assert chosen.code == ExitCode.USAGE
    assert "name it" in chosen.err


async def test_a_dead_letter_that_cannot_be_sent_does_not_keep_the_others(
    namesrv: str, call: Call
) -> None:
    """Its sender chose what it says: a topic that nobody can have, or a body that is broken."""
    dead = MessageQueue("%DLQ%boxing", "broker-a", 0)
    async with failing(namesrv, "boxing", "cartons", [b"a"]), Admin(namesrv=namesrv) as admin:
        for origin, flag in (("no topic", 0), ("cartons", COMPRESSED), ("cartons", 0)):
            await bury(admin, "boxing", {"RETRY_TOPIC": origin}, flag)
        assert await admin.max_offset(dead) == 4
        sent = await asyncio.to_thread(call, "dlq", "resend", "boxing", "--as-new")
        assert sent.code == ExitCode.FAILURE
        assert sent.out == "sent 2 dead letters again as new messages of cartons\n"
        assert "'no topic' has characters outside" in sent.err
        assert "cannot be decompressed" in sent.err
        assert "2 dead letters left that cannot be sent" in sent.err
        assert "1 dead letter stays in the list" in sent.err
        left = (await asyncio.to_thread(call, "dlq", "list", "boxing", "--json")).rows
        assert [row["originTopic"] for row in left] == ["no topic", "cartons", "cartons"]
