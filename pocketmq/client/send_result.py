"""The result of a send."""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import Code, ResponseCode


class SendStatus(Code):
    """The message is stored in every case; all but SEND_OK say what was not confirmed in time.

    The numbers are those of the response codes. Reference: SendStatus.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


#: The response codes of all but SEND_OK.
UNCONFIRMED: Final = frozenset(map(int, SendStatus)) - {int(SendStatus.SEND_OK)}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    `msg_id` is the unique id that the producer gave it; `offset_msg_id` contains the broker's
    address and the physical offset. `recall_handle` of a timer message is for `Producer.recall`.
    `region_id` is the broker's; `trace_on`: whether the broker wants sends to be traced.

    `queue_offset` is the message's offset in `queue`, except for a message with `delay_level`,
    `delay` or `deliver_at`, or of a transaction. Brokers, the official one too, first store such a
    message in a system topic (SCHEDULE_TOPIC_XXXX, rmq_sys_wheel_timer, RMQ_SYS_TRANS_HALF_TOPIC)
    and return its offset there. It gets its offset in `queue` when it is delivered or committed.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
