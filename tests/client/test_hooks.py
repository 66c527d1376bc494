from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pocketmq.client.errors import BatchSendError, InvalidMessage, SendError
from pocketmq.client.observation.send_hooks import SendContext, SendKind
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import FakeCluster


class Recorder:
    def __init__(self) -> None:
        self.began: list[SendContext] = []
        self.ended: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        self.began.append(context)

    def after_send(self, context: SendContext) -> None:
        self.ended.append(context)


async def test_hooks_see_every_kind_of_send(cluster: FakeCluster) -> None:
    recorder = Recorder()
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[recorder]) as p:
        single = await p.send(Message("T", b"x"))
        await p.send_oneway(Message("T", b"x"))
        batch = await p.send_batch([Message("T", b"x")] * 3)
    assert recorder.began == recorder.ended
    contexts = recorder.ended
    assert [c.kind for c in contexts] == [SendKind.SINGLE, SendKind.ONEWAY, SendKind.BATCH]
    assert [c.results for c in contexts] == [[single], [None], batch]
    assert all(c.error is None and c.elapsed > 0 and c.group == "PG" for c in contexts)


async def test_hooks_see_failures(cluster: FakeCluster) -> None:
    recorder = Recorder()
    for broker in cluster.brokers.values():
        broker.mode = ResponseCode.MESSAGE_ILLEGAL
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[recorder]) as p:
        with pytest.raises(SendError) as single:
            await p.send(Message("T", b"x"))
        with pytest.raises(InvalidMessage) as invalid:
            await p.send(Message("T", b""))
        with pytest.raises(BatchSendError) as batch:
            await p.send_batch([Message("T", b"x")] * 2)
        with pytest.raises(InvalidMessage) as posted:
            await p.post(Message("T", b""))
        late = await p.post(Message("T", b"x"))
        with pytest.raises(SendError) as lingered:
            await late
    errors = [context.error for context in recorder.ended]
    # Each who waits for what lingers gets an error of their own.
    assert repr(errors.pop()) == repr(lingered.value)
    assert errors == [single.value, invalid.value, batch.value, posted.value]
    assert recorder.ended[2].results == [None, None]


async def test_a_hook_adds_a_property_to_a_copy(cluster: FakeCluster) -> None:
    class Adding(Recorder):
        def before_send(self, context: SendContext) -> None:
            context.messages = [
                replace(message, properties={**message.properties, "traceparent": "00-ab-cd-01"})
                for message in context.messages
            ]

    message = Message("T", b"x", properties={"own": "1"})
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Adding()]) as p:
        await p.send(message)
    [header] = [header for broker in cluster.brokers.values() for header in broker.sent]
    assert "traceparent\x0100-ab-cd-01\x02" in header.properties
    assert message.properties == {"own": "1"}


async def test_a_broken_hook_changes_nothing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        def before_send(self, context: SendContext) -> None:
            context.messages.clear()

        def after_send(self, context: SendContext) -> None:
            raise ZeroDivisionError

    other = Recorder()
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Broken(), other]) as p:
        await p.send(Message("T", b"x"))
        p.hooks.clear()
        await p.send(Message("T", b"x"))
    assert len(other.ended) == 1
    assert [record.levelname for record in caplog.records].count("ERROR") == 2


async def test_a_hook_may_have_one_method(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    class Before:
        def before_send(self, context: SendContext) -> None:
            calls.append("before")

    class After:
        def after_send(self, context: SendContext) -> None:
            calls.append("after")

    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Before(), After()]) as p:
        await p.send(Message("T", b"x"))
        await (await p.post(Message("T", b"x")))
    assert calls == ["before", "after"] * 2
    assert not caplog.records


async def test_async_hooks_are_awaited(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    class Hook:
        async def before_send(self, context: SendContext) -> None:
            await asyncio.sleep(0)
            calls.append("before")
            context.messages[0] = replace(context.messages[0], tags="hooked")

        async def after_send(self, context: SendContext) -> None:
            await asyncio.sleep(0)
            assert context.error is None
            calls.append("after")

    class Broken:
        async def before_send(self, context: SendContext) -> None:
            raise RuntimeError("before")

        async def after_send(self, context: SendContext) -> None:
            raise RuntimeError("after")

    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Hook(), Broken()]) as p:
        await p.send(Message("T", b"x"))
        assert calls == ["before", "after"]
        await (await p.post(Message("T", b"x")))
    assert calls == ["before", "after"] * 2
    sent = cluster["a"].sent + cluster["b"].sent
    assert ["TAGS\x01hooked" in header.properties for header in sent] == [True, True]
    told = [record.getMessage().rpartition("failed ")[2] for record in caplog.records]
    assert told == ["before a send", "after a send"] * 2
