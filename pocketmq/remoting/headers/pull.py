"""Headers of PULL_MESSAGE and LITE_PULL_MESSAGE."""

from __future__ import annotations

from typing import ClassVar

from pocketmq.remoting.headers.base import I32, I64, Header


class PullMessageRequestHeader(Header):
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

    Attributes:
        queue_offset: the first wanted message's index in its queue.
        sys_flag: bit 0 store commit_offset, 1 the broker may hold the request, 2 the subscription
            of this request counts, 4 lite pull.
        commit_offset, suspend_timeout_millis: needed only where sys_flag speaks of them.
        suspend_timeout_millis: how long the broker may hold the request, ms.
        sub_version: time of the subscription's creation, ms.
        expression_type: TAG (also when absent) or SQL92.
        max_msg_bytes: wanted bound of the answer's body; 5.3.3 ignores it.
        proxy_froward_client_id: spelled as on the wire; proxies only.
        large_transfer: the answer may be larger than official consumers expect. A field of
            pocketmq's own, which official brokers ignore.
    """

    strict_numbers: ClassVar[bool] = True

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64 | None = None
    suspend_timeout_millis: I64 | None = None
    sub_version: I64 = 0
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    proxy_froward_client_id: str | None = None
    large_transfer: bool | None = None


class PullMessageResponseHeader(Header):
    """Where to go on: next_begin_offset, and the queue's bounds (max_offset = last + 1).

    The first four are there for codes 0, 19, 20 and 21. forbidden_type explains code 16: 1 broker,
    2 group, 3 topic, 4 broadcasting, 5 subscription.
    """

    strict_numbers: ClassVar[bool] = True

    suggest_which_broker_id: I64 | None = None
    next_begin_offset: I64 | None = None
    min_offset: I64 | None = None
    max_offset: I64 | None = None
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None

    def ext_json(self) -> bytes:
        # The answer to every pull that was not refused, as one template.
        if (
            self.next_begin_offset is None
            or self.min_offset is None
            or self.max_offset is None
            or self.suggest_which_broker_id is None
            or self.topic_sys_flag is None
            or self.group_sys_flag is None
            or self.offset_delta is not None
            or self.forbidden_type is not None
        ):
            return Header.ext_json(self)
        return _PULLED % (
            self.group_sys_flag,
            self.max_offset,
            self.min_offset,
            self.next_begin_offset,
            self.suggest_which_broker_id,
            self.topic_sys_flag,
        )


_PULLED = (
    b'{"groupSysFlag":"%d","maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    b'"suggestWhichBrokerId":"%d","topicSysFlag":"%d"}'
)
