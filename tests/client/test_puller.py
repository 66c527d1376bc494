"""Which replica is asked for messages, and what the failure of one means for the next pull."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.errors import (
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    TopicNotExist,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeCluster

QUEUE = MessageQueue("T", "a", 0)
EVERYTHING = Expression.of()


@pytest.fixture
async def puller(cluster: FakeCluster) -> AsyncIterator[Puller[MessageExt]]:
    """Of a topic on broker "a", whose replica 1 is the fake broker "b"."""
    cluster.put("T", "a", queues=1)
    cluster.name_server.routes["T"].broker_datas[0].broker_addrs[1] = cluster["b"].address

    def suggest(request: Request[Any]) -> Response:
        return Response(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ext_fields={"nextBeginOffset": "0", "suggestWhichBrokerId": "1"},
        )

    cluster["a"].pull_answer = suggest
    instance = ClientInstance(cluster.namesrv)
    await instance.start()
    yield Puller(instance, "G", MessageExt, suspend=0.5, share_polls=True, hold_slack=-0.2)
    await instance.shutdown()


async def stop(replica: FakeBroker) -> None:
    await replica.stop()


async def hang(replica: FakeBroker) -> None:
    replica.pull_answer = lambda request: None


async def close(replica: FakeBroker) -> None:
    def answer(request: Request[Any]) -> None:
        replica.drop_connections()

    replica.pull_answer = answer


async def refuse(replica: FakeBroker) -> None:
    replica.pull_answer = lambda request: Response(ResponseCode.TOPIC_NOT_EXIST, "no topic")


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize(
    ("break_down", "error"),
    [
        (stop, RemotingConnectError),
        (hang, RemotingTimeout),
        (close, RemotingClosed),
        (refuse, TopicNotExist),
    ],
)
async def test_after_a_replica_failed_the_master_is_asked(
    cluster: FakeCluster,
    puller: Puller[MessageExt],
    break_down: Callable[[FakeBroker], Any],
    error: type[RemotingError],
    polled: bool,
) -> None:
    async def pull() -> None:
        if polled:
            await puller.poll(QUEUE, 0, EVERYTHING, 32, lambda: 1)
        else:
            await puller.pull(QUEUE, 0, EVERYTHING, max_messages=32, suspend=0.5)

    await break_down(cluster["b"])
    for turn in range(1, 3):
        await pull()
        assert len(cluster["a"].pulls) == turn
        with pytest.raises(error):
            await pull()
        assert len(cluster["a"].pulls) == turn
