"""Sends that travel as the children of one parent (Batch-Protocol), each to a queue of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from pocketmq.client.batch_protocol import BatchProtocol
from pocketmq.client.errors import RemotingError
from pocketmq.client.send_result import SendStatus
from pocketmq.message import properties as property_text
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import SendMessageRequestHeaderV2
from pocketmq.remoting.pool import ConnectionPool

from .cluster import BROKER_NAME, Cluster
from .engine.scheduler import MILLISECOND
from .history import Place, Send

GROUP: Final = "producers-parents"
STORED: Final = {int(status) for status in SendStatus}


class Parents:
    """The connections of one producer, on which it sends parents of its own making."""

    def __init__(self, cluster: Cluster, timeout: float) -> None:
        signer = cluster.credentials
        self._cluster = cluster
        self._timeout = timeout
        self._pool = ConnectionPool(sign=None if signer is None else signer.sign)
        self._parents = BatchProtocol(self._pool)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._pool.close()

    async def send(self, address: str, sends: Sequence[Send]) -> None:
        """Send them together, and note what each of them is answered."""
        await asyncio.gather(*(self._child(address, send) for send in sends))

    async def _child(self, address: str, send: Send) -> None:
        assert send.queue is not None
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP,
            topic=send.topic,
            queue_id=send.queue,
            sys_flag=0,
            born_timestamp=self._cluster.scheduler.now // MILLISECOND,
            flag=0,
            properties=property_text.encode({"KEYS": send.name, "name": send.name}),
        )
        try:
            answer = await self._parents.request(
                address, RequestCode.SEND_MESSAGE_V2, header, send.body, timeout=self._timeout
            )
        except RemotingError as error:
            send.error = repr(error)
        else:
            self._answered(send, answer)
        send.ended = self._cluster.scheduler.now

    def _answered(self, send: Send, answer: Command) -> None:
        if answer.code not in STORED:
            send.error = f"{answer.code} {answer.remark}"
            return
        send.confirmed = answer.code == SendStatus.SEND_OK
        told = answer.ext_fields
        send.place = Place(send.topic, BROKER_NAME, int(told["queueId"]), int(told["queueOffset"]))
