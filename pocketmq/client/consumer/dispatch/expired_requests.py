"""Requests whose sender has stopped waiting for the reply: they are not worked on.

The work of a request may charge a card. Its sender has reported a failure by now, and perhaps asked
again; a reply would reach nobody.
"""

from __future__ import annotations

import logging
import time

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names

log = logging.getLogger(__name__)

#: What the properties of every request contain. Most messages are none, and are not even asked
#: about: each call of `drops` costs a percent of what a message costs a consumer. To be looked for
#: by `find`: `in` first makes and drops an exception, because bytes are no number.
MARK = f"{names.REPLY_TO_CLIENT}\x01".encode()


class ExpiredRequests:
    """Finds the expired requests of one consumer; with `wanted`, none of them is dropped.

    Attributes:
        count: how many were dropped.
    """

    def __init__(self, group: str, *, wanted: bool) -> None:
        self.count = 0
        self._group = group
        self._wanted = wanted
        self._log = LimitedLog(log)

    def drops(self, message: ConsumedMessage) -> bool:
        """Whether the message is one, which counts as done then."""
        # Properties of other messages are not decoded for this.
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
