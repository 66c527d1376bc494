"""Drops requests whose sender has stopped waiting for the reply.

A request may charge a card, for example. Its sender has reported a failure by now, and perhaps sent
another one; a reply would reach nobody.
"""

from __future__ import annotations

import logging
import time

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names

log = logging.getLogger(__name__)

#: In the properties of every request. Callers check it first, since most messages are not requests:
#: each call of `drops` costs a percent of the time of consuming a message. Search with `find`: `in`
#: first tries to convert the bytes to a number, and drops the exception.
MARK = f"{names.REPLY_TO_CLIENT}\x01".encode()


class ExpiredRequests:
    """Finds the expired requests of one consumer; with `wanted`, none is dropped.

    Attributes:
        count: dropped requests.
    """

    def __init__(self, group: str, *, wanted: bool) -> None:
        self.count = 0
        self._group = group
        self._wanted = wanted
        self._log = LimitedLog(log)

    def drops(self, message: ConsumedMessage) -> bool:
        """Return whether to drop a message, which then counts as consumed."""
        # The properties of other messages need not be decoded.
        if message.properties_bytes.find(MARK) < 0 or self._wanted:
            return False
        deadline = message.deadline
        if deadline is None:
            return False
        late = time.time_ns() // 1_000_000 - deadline
        if late < 0:
            return False
        self.count += 1
        self._log.warning(
            "group %s: dropping request %s of %s: its sender stopped waiting %.3f s ago",
            self._group,
            message.msg_id,
            message.topic,
            late / 1000,
            extra=fields(group=self._group, queue=message.queue, msg_id=message.msg_id),
        )
        return True
