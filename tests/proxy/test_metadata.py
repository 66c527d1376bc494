"""What a proxy knows of topics and groups while brokers answer, and while they do not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pocketmq.proxy.port.broker_port import Answer, BrokerPort, Link
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.metadata import Metadata
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import QueueData, TopicRouteData
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingTimeout


class Brokers:
    """A port and its link: two brokers, with an ordered topic and an ordered group."""

    local = False

    def __init__(self) -> None:
        self.silent: set[str] = set()

    def brokers(self) -> list[str]:
        return ["a", "b"]

    async def route(self, topic: str) -> TopicRouteData:
        queues = [
            QueueData(
                broker_name=name, perm=6, read_queue_nums=1, write_queue_nums=1, topic_sys_flag=0
            )
            for name in self.brokers()
        ]
        return TopicRouteData(queue_datas=queues, broker_datas=[])

    def request(self, broker: str, code: int, header: Any) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if broker in self.silent:
            answer.set_exception(RemotingTimeout("no answer"))
        elif code == RequestCode.GET_TOPIC_CONFIG:
            config = TopicConfig(topic_name=header.topic, attributes={"message.type": "FIFO"})
            answer.set_result(Answer(0, None, None, config.encode()))
        elif header.group == "ordered":
            group = SubscriptionGroupConfig(group_name="ordered", consume_message_orderly=True)
            answer.set_result(Answer(0, None, None, group.encode()))
        else:
            answer.set_result(Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, None, None))
        return answer


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def metadata(brokers: Brokers) -> Metadata:
    return Metadata(cast(BrokerPort, brokers), cast(Link, brokers), fresh=0.0)


async def test_what_is_known_stays_while_no_broker_answers(
    brokers: Brokers, metadata: Metadata
) -> None:
    brokers.silent = {"a"}
    for silent in ({"a"}, {"a", "b"}, {"a", "b"}):
        brokers.silent = silent
        assert (await metadata.topic("t")).types == (pb.FIFO,)
        assert (await metadata.group("ordered")).consume_message_orderly
        for _ in range(5):
            await asyncio.sleep(0)  # what is asked in the background fails


async def test_what_is_not_known_is_not_guessed(brokers: Brokers, metadata: Metadata) -> None:
    brokers.silent = {"a", "b"}
    with pytest.raises(RemotingTimeout):
        await metadata.topic("t")
    with pytest.raises(RemotingTimeout):
        await metadata.group("ordered")


async def test_a_group_that_does_not_exist_has_the_defaults(
    brokers: Brokers, metadata: Metadata
) -> None:
    brokers.silent = {"a"}
    assert not (await metadata.group("new")).consume_message_orderly
