"""What a send returns."""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import Code, ResponseCode


class SendStatus(Code):
    """The message is stored in every case; the others say what was not confirmed in time.

    Numbered after the response codes. Reference: SendStatus.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


#: The response codes of the other ones.
UNCONFIRMED: Final = frozenset(map(int, SendStatus)) - {int(SendStatus.SEND_OK)}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    `msg_id` is the unique id the producer gave it; `offset_msg_id` names broker and physical
    offset. `recall_handle`, of a message with a timer, is what `Producer.recall` takes. `region_id`
    is the broker's; `trace_on` says whether it wants sends to be traced.

    `queue_offset` is the message's place in `queue`, except for a message with `delay_level`,
    `delay` or `deliver_at`, or of a transaction. Brokers, the official one too, keep such a message
    in a topic of their own (SCHEDULE_TOPIC_XXXX, rmq_sys_wheel_timer, RMQ_SYS_TRANS_HALF_TOPIC) and
    answer with its offset there. It gets its place in `queue` when it is delivered or committed.
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
