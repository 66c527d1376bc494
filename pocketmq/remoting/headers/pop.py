"""Headers of POP consumption. Their codes only fit JSON headers."""

from pocketmq.remoting.headers.base import I32, I64, Header


class PopMessageRequestHeader(Header):
    """POP_MESSAGE (200050). queue_id -1 is any queue; times in ms."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64
    init_mode: I32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header):
    """When and for how long the messages were taken, and where they came from."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(Header):
    """ACK_MESSAGE (200051). offset is a queue offset."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


class ChangeInvisibleTimeRequestHeader(Header):
    """CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64


class ChangeInvisibleTimeResponseHeader(Header):
    """The message's new terms."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class NotificationRequestHeader(Header):
    """NOTIFICATION (200054): tell when there is a message to pop."""

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(Header):
    """Whether there is one, and whether the broker can hold no more such requests."""

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
