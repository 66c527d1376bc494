"""Pulls undecoded records, for readers that decode them themselves.

The pulls contain their subscription, so they need no heartbeat. Brokers do not hold them: the
answer comes at once, even if there is no message. No offset is committed.
"""

from __future__ import annotations

from typing import NamedTuple

from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.puller import SUBSCRIPTION, PullStatus
from pocketmq.client.errors import BodyError, error_for
from pocketmq.client.instance import ClientInstance
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

_STATUSES = {int(status): status for status in PullStatus}


class PulledRecords(NamedTuple):
    """The result of a pull.

    `records` are whole records one after another, a view of the received frame. Tags are compared
    only by their hashes. Continue at `next_offset` with any status. `reason` is the broker's remark
    on the status.
    """

    status: PullStatus
    reason: str
    records: ReadableBuffer
    next_offset: int
    min_offset: int
    max_offset: int


class RecordPuller:
    """Pulls for one consumer group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        *,
        most: int,
        timeout: float,
    ) -> PulledRecords:
        """Return at most `most` records from `offset` on; the broker may return fewer. `timeout` is
        in seconds.

        Raises NoRouteInfo, BrokerNotFound, the error of an error answer, RemotingTimeout and
        RemotingClosed.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression.text,
            expression_type=expression.type,
            large_transfer=True,
        )
        answer = await self._instance.pool.request(
            await self._instance.broker_address(queue),
            RequestCode.PULL_MESSAGE,
            header,
            timeout=timeout,
        )
        status = _STATUSES.get(answer.code)
        if status is None:
            raise error_for(answer.code, answer.remark, queue.broker_name)
        fields = PullMessageResponseHeader.from_ext(answer.ext_fields)
        if fields.next_begin_offset is None:
            raise BodyError("the answer to a pull lacks nextBeginOffset", queue.broker_name)
        return PulledRecords(
            status,
            answer.remark or status.name,
            answer.body if status is PullStatus.FOUND else b"",
            fields.next_begin_offset,
            fields.min_offset or 0,
            fields.max_offset or 0,
        )
