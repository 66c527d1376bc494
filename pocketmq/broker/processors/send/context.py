"""The state that single sends and `SendMany` share: checked topics, answers, and waiting sends."""

from __future__ import annotations

from typing import Any, Final

from pocketmq.broker.acknowledge.answers import SendAnswers
from pocketmq.broker.acknowledge.group_commit import GroupCommit
from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage
from pocketmq.broker.processors.send.checks import check_dispatch, of_client
from pocketmq.broker.statistics.message_types import FIFO, NORMAL, MessageTypes
from pocketmq.broker.statistics.statistics import Traffic
from pocketmq.message import properties as names
from pocketmq.message import sysflag
from pocketmq.message.identity import new_unique_id
from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.message.properties import find
from pocketmq.remoting.answers.stored_answer import StoredAnswer
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.serving.request import Request, Response

SEPARATOR: Final = "\x02"
MULTI_TAG: Final = "MULTI_TAG"


def line_type(properties: str) -> str:
    """Return the type of a message on the fast path."""
    return NORMAL if find(properties, names.SHARDING_KEY) is None else FIFO


class Target:
    """A topic that passed the checks of a send, with the values that the hot path needs."""

    __slots__ = ("queue_limit", "sys_flag", "traffic", "types", "write_queues")

    def __init__(self, topic: TopicConfig, traffic: Traffic, types: MessageTypes) -> None:
        self.queue_limit = max(topic.read_queue_nums, topic.write_queue_nums)
        self.write_queues = topic.write_queue_nums
        self.sys_flag = sysflag.MULTI_TAGS if topic.topic_filter_type == MULTI_TAG else 0
        self.traffic = traffic
        self.types = types


class SendContext:
    """The shared part of one broker's sends; `store_host` is the broker's packed address.

    Attributes:
        targets: the checked topics by name. The dict is cleared in place, never replaced.
        refusals: cached answers to sends that were refused for their topic and queue id. This dict
            is never replaced either.
        added: properties that the broker adds to every message. On the fast path, a name that the
            producer also set occurs twice: the last one counts.
        suffix: `added`, encoded.
        answers: the answers of sends.
        stored_message, stored_batch: prepared frames of the usual answers.
        plain: the prepared frames have the configured region.
        most_children: the most children of a parent of sends.
        safety: tells when sends may be answered.
        unflushed: the sends that wait for the disk, or for replicas.
        unwritten: the sends that are answered at once.
    """

    def __init__(
        self,
        config: BrokerConfig,
        safety: PutSafety,
        unwritten: UnwrittenSends,
        store_host: bytes,
    ) -> None:
        self._has_light_queues = config.has_light_queues
        self.targets: dict[str, Target] = {}
        self.refusals: dict[tuple[str, int], Response] = {}
        self.added = {
            names.MSG_REGION: config.region_id,
            names.TRACE_ON: "true" if config.trace_on else "false",
            names.CLUSTER: config.broker_cluster_name,
        }
        self.suffix = names.encode(self.added)
        self.answers = SendAnswers(config, store_host)
        self.stored_message = StoredAnswer.of_message(store_host, config.trace_on)
        self.stored_batch = StoredAnswer.of_batch(config.trace_on)
        self.plain = config.region_id == DEFAULT_REGION
        self.most_children = config.max_child_request_num
        self.safety = safety
        self.unflushed = GroupCommit(config, safety)
        self.unwritten = unwritten

    def inner_message(
        self, request: Request[Any], topic: str, queue_id: int, properties: dict[str, str]
    ) -> InnerMessage:
        """Return the message of a send on the slow path, to be put into `topic`. A unique id and
        the broker's properties are added to its decoded `properties`. Raises RemotingError like
        `of_client` and `check_dispatch`."""
        header = request.header
        of_client(properties, topic)
        if self._has_light_queues:
            check_dispatch(request, properties)
        properties.setdefault(names.UNIQ_KEY, new_unique_id())
        properties.update(self.added)
        return InnerMessage(
            topic,
            queue_id,
            request.body,
            properties,
            header.born_timestamp,
            request.connection.peer_packed,
            flag=header.flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times,
        )
