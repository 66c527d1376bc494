"""Headers of POP consumption. Their codes only fit JSON headers."""

from __future__ import annotations

from pocketmq.remoting.headers.base import I32, I64, Header


class PopMessageRequestHeader(Header):
    """POP_MESSAGE (200050).

    Attributes:
        queue_id: -1 is any queue of the topic.
        max_msg_nums: at most 32.
        invisible_time: how long nobody else gets the messages, ms.
        poll_time: how long the broker may hold the request, ms from born_time on.
        born_time: Unix ms; 0 (also when absent) is the time of arrival.
        init_mode: where a new group begins: 0 at the oldest message, 1 at the end.
        exp_type, exp: TAG or SQL92, and the expression; all messages without one.
        order: messages of a queue wait until those before them are acknowledged.
        attempt_id: a repeated one gets the same messages in order again.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    init_mode: I32
    born_time: I64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header):
    """When and for how long (ms) the messages were taken, and where they came from.

    Attributes:
        revive_qid: for the receipt handles; 999 when popped in order.
        rest_num: messages that are left in the queues that were looked at.
        start_offset_info, msg_offset_info, order_count_info: see `pocketmq.message.pop_offsets`.
    """

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(Header):
    """ACK_MESSAGE (200051).

    Attributes:
        topic: the one that the message lies in, which may be a retry topic.
        extra_info: the receipt handle (`pocketmq.message.receipt_handle`).
        offset: queue offset of the message.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


class ChangeInvisibleTimeRequestHeader(Header):
    """CHANGE_MESSAGE_INVISIBLETIME (200053). As ACK_MESSAGE; invisible_time is from now on, ms.

    With `suspend`, of 5.5, the next delivery counts as no further attempt.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64
    suspend: bool | None = None


class ChangeInvisibleTimeResponseHeader(Header):
    """The message's new terms. With these and its own offset as the start offset, clients build the
    new receipt handle; in order, the handle keeps its start offset and pop time."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class NotificationRequestHeader(Header):
    """NOTIFICATION (200054): tell when there is a message to pop.

    exp_type, exp: from 5.4 on; TAG or SQL92, and the expression. All messages without both.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64 = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header):
    """Whether a message can be popped, and whether the broker can hold no more such requests."""

    has_msg: bool = False
    polling_full: bool = False


class PeekMessageRequestHeader(Header):
    """PEEK_MESSAGE (200052)."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32


class PollingInfoRequestHeader(Header):
    """POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: I32


class PollingInfoResponseHeader(Header):
    """How many pop requests are held."""

    polling_num: I32
