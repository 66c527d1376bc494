from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.trace_record import ConsumeReturn
from pocketmq.client.reconsume_later import ReconsumeLater
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


class Recorder:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.before: list[ConsumeContext] = []
        self.after: list[ConsumeContext] = []

    def before_consume(self, context: ConsumeContext) -> None:
        assert context.elapsed == 0
        self.before.append(context)

    def after_consume(self, context: ConsumeContext) -> None:
        self.after.append(context)

    @property
    def outcomes(self) -> dict[bytes, ConsumeReturn]:
        return {m.body: context.returned for context in self.after for m in context.messages}


def consumer(cluster: FakeCluster, *args: Any, **options: Any) -> PushConsumer:
    return PushConsumer("G", *args, namesrv=cluster.namesrv, **({"start": "begin"} | options))


async def test_hooks_see_the_work_of_handlers(cluster: FakeCluster) -> None:
    recorder = Recorder()
    for body in (b"good", b"bad", b"later"):
        cluster["a"].store("T", 0, body)

    async def handle(message: ConsumedMessage) -> None:
        working = [context for context in recorder.before if message in context.messages]
        assert len(working) == (message.body != b"more")
        assert not set(working) & set(recorder.after)
        if message.body == b"bad":
            raise RuntimeError("bad")
        if message.body == b"later":
            raise ReconsumeLater

    async with consumer(cluster, {"T": "*"}, handler=handle, hooks=[recorder]) as c:
        await until(lambda: len(cluster["a"].sent_back) == 2)
        assert {(x.group, x.client_id) for x in recorder.after} == {("G", c.client_id)}
        # What was not there when it began is called from then on.
        late = Recorder()
        c.hooks.append(late)
        c.hooks.remove(recorder)
        cluster["a"].store("T", 1, b"more")
        await until(lambda: late.after)
    assert recorder.outcomes == {
        b"good": ConsumeReturn.SUCCESS,
        b"bad": ConsumeReturn.EXCEPTION,
        b"later": ConsumeReturn.FAILED,
    }
    assert late.outcomes == {b"more": ConsumeReturn.SUCCESS}
    [bad] = [context for context in recorder.after if context.messages[0].body == b"bad"]
    assert isinstance(bad.error, RuntimeError)
    assert 0 <= bad.elapsed < 10


async def test_hooks_see_blocks_of_who_iterates(cluster: FakeCluster) -> None:
    recorder = Recorder()
    for body in (b"good", b"bad"):
        cluster["a"].store("T", 0, body)
    async with consumer(cluster, {"T": "*"}, hooks=[recorder]) as c:
        for _ in range(2):
            async with await anext(c) as message:
                assert recorder.before[-1].messages == (message,)
                if message.body == b"bad":
                    raise ReconsumeLater
    assert recorder.outcomes == {b"good": ConsumeReturn.SUCCESS, b"bad": ConsumeReturn.FAILED}


async def test_work_that_is_ended_is_told_as_well(cluster: FakeCluster) -> None:
    recorder = Recorder()
    cluster["a"].store("T", 0, b"slow")

    async def handle(message: ConsumedMessage) -> None:
        await asyncio.Event().wait()

    options: dict[str, Any] = {"handler": handle, "hooks": [recorder]}
    async with consumer(cluster, {"T": "*"}, consume_timeout=0.05, **options):
        await until(lambda: recorder.after)
    assert recorder.outcomes == {b"slow": ConsumeReturn.TIME_OUT}
    cluster["b"].store("T", 0, b"never")
    async with consumer(cluster, {"T": "*"}, shutdown_timeout=0.01, **options):
        await until(lambda: recorder.before[-1].messages[0].body == b"never")
    assert recorder.outcomes[b"never"] is ConsumeReturn.EXCEPTION
    assert isinstance(recorder.after[-1].error, asyncio.CancelledError)


async def test_errors_of_hooks_do_no_harm(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def before_consume(self, context: ConsumeContext) -> None:
            raise RuntimeError("before")

        def after_consume(self, context: ConsumeContext) -> None:
            raise RuntimeError("after")

    recorder = Recorder()
    cluster["a"].store("T", 0, b"x")
    async with consumer(
        cluster, {"T": "*"}, handler=lambda message: None, hooks=[Broken(), recorder]
    ):
        await until(lambda: recorder.after)
    assert cluster["a"].offsets["G", "T", 0] == 1
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert logged == ["before", "after"]


async def test_what_a_pull_consumer_hands_out_is_done(cluster: FakeCluster) -> None:
    recorder = Recorder()
    for queue_id in (0, 0, 1):
        cluster["a"].store("T", queue_id, b"%d" % queue_id)
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin", hooks=[recorder]) as c:
        await c.assign("T")
        got = [await anext(c)]
        while len(got) < 3:
            got += await c.poll()
    assert [m for context in recorder.after for m in context.messages] == got
    assert {context.returned for context in recorder.after} == {ConsumeReturn.SUCCESS}
    assert all(len({m.queue for m in context.messages}) == 1 for context in recorder.after)


class AsyncRecorder:
    """A hook of coroutines, which waits before it notes anything; it has no `before_consume`."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    async def after_consume(self, context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        self._notes.append(f"after {context.returned.name}")


async def test_coroutines_of_hooks_are_awaited_before_the_outcome_is_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["a"].store("T", 0, b"1")
    notes: list[str] = []
    hook: Any = AsyncRecorder(notes)
    async with consumer(cluster, {"T": "*"}, handler=len, hooks=[hook]):
        await until(lambda: cluster["a"].sent_back)  # len() of a message fails
        assert notes == ["after EXCEPTION"]
    notes.clear()
    cluster["a"].store("T", 0, b"2")
    async with consumer(cluster, {"T": "*"}, hooks=[hook]) as c:
        async with await anext(c):
            pass
        assert notes == ["after SUCCESS"]
    notes.clear()
    cluster["a"].store("T", 0, b"3")
    async with PullConsumer("G", namesrv=cluster.namesrv, hooks=[hook], start="begin") as reader:
        await reader.assign("T")
        assert await reader.poll(timeout=10)
        assert notes == ["after SUCCESS"]
    assert "of hook" not in caplog.text


async def test_a_redelivery_has_a_reason_in_the_log(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for body in (b"no reason", b"a reason"):
        cluster["a"].store("T", 0, body)

    def handle(message: ConsumedMessage) -> None:
        raise ReconsumeLater("the bank is closed" if message.body == b"a reason" else "")

    async with consumer(cluster, {"T": "*"}, handler=handle):
        await until(lambda: len(cluster["a"].sent_back) == 2)
    lines = [text for each in caplog.records if "redelivering" in (text := each.getMessage())]
    assert lines[0].endswith(": its handler asked for it")
    assert lines[1].endswith(": the bank is closed")
