"""PULL_MESSAGE and LITE_PULL_MESSAGE: reading a queue, with long polling.

A pull is checked in the reference's order, and then reads the queue. It is answered with the
messages found; if there are none and the client allows it, it is held. A held pull is executed
again when a message arrives or its timeout ends, and is then answered in any case. Reference:
broker PullMessageProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from pocketmq.broker.config import MASTER_ID, BrokerConfig
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.consumer_filter import (
    ConsumerFilters,
    NotCompiled,
    codes_of,
    filter_not_supported,
    is_tag_type,
    ready_filter,
)
from pocketmq.broker.tables.consumer_groups import CONSUME_ACTIVELY, ConsumerGroups
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups, is_tool_group
from pocketmq.broker.tables.topic_config import PERM_READ, TopicConfigs
from pocketmq.broker.waiting.compile_queue import CompileQueue
from pocketmq.broker.waiting.filter_work import PropertyFilter
from pocketmq.broker.waiting.hold_service import HoldService
from pocketmq.broker.waiting.late_answer import answer_late
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.sql_filter import SqlSyntaxError
from pocketmq.message.tags import TagExpressionError
from pocketmq.remoting.answers.batch import NOT_FOUND_REMARK
from pocketmq.remoting.answers.batch_answers import has_enough, is_heard
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.reader import DiskLimits
from pocketmq.store.results import GetResult, GetStatus

log = logging.getLogger(__name__)

PullRequest = Request[PullMessageRequestHeader]

# sysFlag bits
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

# forbiddenType of code 16
BROKER_FORBIDDEN: Final = 1
GROUP_FORBIDDEN: Final = 2
TOPIC_FORBIDDEN: Final = 3
BROADCASTING_FORBIDDEN: Final = 4
SUBSCRIPTION_FORBIDDEN: Final = 5


_FOUND: Final = GetStatus.FOUND
_CODES: Final = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY_QUEUE: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class PullRefused(RemotingError):
    """A pull that is not allowed (code 16), with the forbiddenType for clients."""

    def __init__(self, remark: str, forbidden_type: int) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class PullProcessor:
    """Pulls of one broker; `holds` has the held pulls. `lacks_master()` tells whether the broker is
    a slave that has lost its master."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        statistics: Statistics,
        compiling: CompileQueue,
        *,
        lacks_master: Callable[[], bool] = lambda: False,
    ) -> None:
        self._lacks_master = lacks_master
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._filters = filters
        self._offsets = offsets
        self._statistics = statistics
        self._compiling = compiling
        self._log = LimitedLog(log)
        self.holds = HoldService(store, self._pull_again, limit=config.max_held_pulls)

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the pull codes here."""
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            dispatcher.register(code, self.pull, PullMessageRequestHeader)

    def pull(self, request: PullRequest) -> Response | None:
        """Answer with messages; return None if there are none yet and the request is held."""
        try:
            try:
                return self._pull(request, first=True)
            except NotCompiled as new:
                self._compiling.then(request, self.pull, new.text)
                return None
        except RemotingError as error:
            return _refusal(error)

    def _pull_again(self, request: Request[Any]) -> int:
        """Answer a held pull that was woken or timed out; return the size of the answer."""
        return answer_late(request, self._pull_held, self._log)

    def _pull_held(self, request: PullRequest) -> Response | None:
        try:
            if request.connection.writable and is_heard(request):
                return self._pull(request, first=False)
            return self._unread(request.header)
        except NotCompiled as new:
            return self._compile_again(request, new.text)
        except RemotingError as error:
            return _refusal(error)

    def _compile_again(self, request: PullRequest, text: str) -> Response | None:
        """A held pull without an expression has a new one of its group."""
        try:
            self._compiling.then(request, self.pull, text)
        except RemotingError as error:
            return _refusal(error)
        return None

    def _commit(self, header: PullMessageRequestHeader, offset: int) -> None:
        topic, queue_id = header.topic, header.queue_id
        if self._topics.is_recreated(topic) and offset > self._store.max_offset(topic, queue_id):
            return  # an offset of deleted messages: the consumer does not know of the deletion yet
        if self._offsets.has_room(header.consumer_group, topic):
            self._offsets.commit(header.consumer_group, topic, queue_id, offset)

    def _pull(self, request: PullRequest, *, first: bool) -> Response | None:
        header = request.header
        group, topic = self._checked(request)
        codes, accept = self._filter(header, group)
        if self._config.reject_pull_consumer_enable:
            self._refuse_strangers(request)
        queue_id = header.queue_id
        offset = header.queue_offset
        if self._offsets.has_reset(header.consumer_group, header.topic, queue_id):
            return self._reset(request, topic, group)
        commit_offset = -1
        if first and header.sys_flag & COMMIT_OFFSET:
            if header.commit_offset is None:
                raise _missing("commitOffset", COMMIT_OFFSET)
            commit_offset = header.commit_offset
        if commit_offset >= 0 and has_enough(request):
            self._commit(header, commit_offset)
            return Response(ResponseCode.PULL_NOT_FOUND, NOT_FOUND_REMARK)
        began = perf_counter_ns()
        result = self._get(header, codes, accept)
        status = result.status
        took = perf_counter_ns() - began
        if took > self._statistics.longest_get:
            self._statistics.longest_get = took
        self._offsets.pulled(
            header.consumer_group, header.topic, queue_id, result.next_begin_offset
        )
        if commit_offset >= 0:
            self._commit(header, commit_offset)
        if status is _FOUND:
            code = ResponseCode.SUCCESS
        elif status in _EMPTY_QUEUE:
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[status]
        next_offset, suggested = result.next_begin_offset, MASTER_ID
        if self._config.slave_read_enable:
            is_slow = result.behind > self._config.message_memory
            suggested = group.which_broker_when_consume_slowly if is_slow else group.broker_id
            if self._config.is_slave:
                code, next_offset, suggested = self._as_slave(
                    code, offset, next_offset, suggested, is_slow=is_slow
                )
        if code == ResponseCode.PULL_NOT_FOUND and first and header.sys_flag & SUSPEND:
            long_polling = self._config.long_polling_enable
            timeout = (
                header.suspend_timeout_millis
                if long_polling
                else self._config.short_polling_time_mills
            )
            if timeout is None:
                raise _missing("suspendTimeoutMillis", SUSPEND)
            if self.holds.hold(request, header.topic, queue_id, offset, codes, timeout, accept):
                return None
        self._count(header, result)
        return Response(
            code,
            "FOUND" if status is _FOUND else status.name,
            PullMessageResponseHeader(
                suggest_which_broker_id=suggested,
                next_begin_offset=next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                topic_sys_flag=topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag,
            ),
            result.buffers,
        )

    def _as_slave(
        self, code: ResponseCode, offset: int, next_offset: int, suggested: int, *, is_slow: bool
    ) -> tuple[ResponseCode, int, int]:
        """Return the code, next offset and suggested broker of a slave's answer.

        While there is a master, a reader that keeps up is sent to it, and offsets are not corrected
        here, because a slave may have fewer messages. Without a master, readers stay and may be
        held; the official slave makes them pull again and again.
        """
        wrong = code == ResponseCode.PULL_OFFSET_MOVED and not self._config.offset_check_in_slave
        if self._lacks_master():
            if wrong:
                return ResponseCode.PULL_NOT_FOUND, offset, self._config.broker_id
            return code, next_offset, self._config.broker_id
        if wrong:
            code, next_offset = ResponseCode.PULL_RETRY_IMMEDIATELY, offset
        if is_slow:
            return code, next_offset, suggested
        if code != ResponseCode.SUCCESS:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return code, next_offset, MASTER_ID

    def _get(
        self,
        header: PullMessageRequestHeader,
        codes: frozenset[int] | None,
        accept: PropertyFilter | None,
    ) -> GetResult:
        """Read the messages for one answer.

        Official consumers get the official limits: fewer messages if they are probably read from
        the disk (DefaultMessageStore.isTheBatchFull). Consumers that set largeTransfer get more, in
        either case.
        """
        config = self._config
        asked = header.max_msg_nums
        if header.large_transfer:
            return self._store.get(
                header.topic,
                header.queue_id,
                header.queue_offset,
                max(1, min(asked, config.max_large_transfer_count)),
                max_bytes=config.max_large_transfer_bytes,
                codes=codes,
                accept=accept,
            )
        return self._store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(1, min(asked, config.max_transfer_count_on_message_in_memory)),
            max_bytes=config.max_transfer_bytes_on_message_in_memory,
            codes=codes,
            accept=accept,
            disk=DiskLimits(
                config.message_memory,
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
            ),
        )

    def _reset(
        self,
        request: PullRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> Response | None:
        """Return the answer that moves a consumer to the offset that an admin set.

        Return None if there is no such offset, or no request waits for this answer: then the next
        pull gets it.
        """
        header = request.header
        offset: int | None = None
        if is_heard(request):
            offset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            return None
        self._offsets.pulled(header.consumer_group, header.topic, header.queue_id, offset)
        return Response(
            ResponseCode.PULL_OFFSET_MOVED,
            "OFFSET_RESET",
            PullMessageResponseHeader(
                suggest_which_broker_id=MASTER_ID,
                next_begin_offset=offset,
                min_offset=self._store.min_offset(header.topic, header.queue_id),
                max_offset=self._store.max_offset(header.topic, header.queue_id),
                topic_sys_flag=topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag,
            ),
        )

    def _unread(self, header: PullMessageRequestHeader) -> Response:
        """Return an answer that makes the client pull again: it has not read its earlier answers,
        or does not get this one.

        A connection may have thousands of held pulls. If all of them were answered with messages
        while the client does not read, a few such clients could fill the memory.
        """
        return Response(
            ResponseCode.PULL_NOT_FOUND,
            "the client has not read its earlier answers",
            PullMessageResponseHeader(
                suggest_which_broker_id=MASTER_ID,
                next_begin_offset=header.queue_offset,
                min_offset=self._store.min_offset(header.topic, header.queue_id),
                max_offset=self._store.max_offset(header.topic, header.queue_id),
                topic_sys_flag=0,
                group_sys_flag=0,
            ),
        )

    def _count(self, header: PullMessageRequestHeader, result: GetResult) -> None:
        statistics = self._statistics
        if not result.message_count:
            statistics.get_miss += 1
            return
        statistics.get_found += 1
        of_group = statistics.get_of(header.topic, header.consumer_group)
        for traffic in (of_group, statistics.get):
            traffic.add(result.message_count, 1, result.size)

    # --- checks, in the order of the reference ------------------------------------------------

    def _checked(self, request: PullRequest) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        header = request.header
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise PullRefused(
                f"the broker[{config.advertised_host}] pulling message is forbidden",
                BROKER_FORBIDDEN,
            )
        if request.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise PullRefused(
                f"the broker[{config.advertised_host}] for lite pull consumer is forbidden",
                BROKER_FORBIDDEN,
            )
        group = self._groups.find_any(header.consumer_group, request.connection)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise PullRefused(
                f"subscription group no permission, {header.consumer_group}", GROUP_FORBIDDEN
            )
        topic = self._topics.check_served(header.topic)
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ:
            raise PullRefused(
                f"the topic[{header.topic}] pulling message is forbidden", TOPIC_FORBIDDEN
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group, topic

    def _refuse_strangers(self, request: PullRequest) -> None:
        """Refuse clients that are not members of a group of push consumers, except RocketMQ's
        tools. Raises RemotingError.
        """
        name = request.header.consumer_group
        group = self._consumers.get(name)
        if group is not None and (
            group.consume_type != CONSUME_ACTIVELY or request.connection in group.clients
        ):
            return
        if not is_tool_group(name):
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist, or the pull consumer is rejected by server.",
            )

    def _filter(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> tuple[frozenset[int] | None, PropertyFilter | None]:
        """Return the tag hashes and the property filter of a pull; None for no restriction. Raises
        RemotingError.
        """
        if header.sys_flag & SUBSCRIPTION:
            expression = header.subscription or ""
            try:
                if is_tag_type(header.expression_type):
                    return codes_of(expression), None
                if not expression:
                    raise SqlSyntaxError(1, 1, "it is empty")
                kind = header.expression_type
                return None, self._property_filter(header.topic, expression, kind)
            except (TagExpressionError, SqlSyntaxError) as error:
                raise RemotingError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                    f"parse the consumer's subscription failed: {error}",
                ) from None
        consumers = self._consumers.get(header.consumer_group)
        if consumers is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if consumers.broadcasting and not group.consume_broadcast_enable:
            raise PullRefused(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                BROADCASTING_FORBIDDEN,
            )
        if not self._groups.may_read(header.consumer_group, header.topic):
            raise PullRefused(
                f"the consumer group[{header.consumer_group}] is forbidden for "
                f"topic[{header.topic}]",
                SUBSCRIPTION_FORBIDDEN,
            )
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if subscription.data.sub_version < header.sub_version:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.data.class_filter_mode:
            raise filter_not_supported("a Java class")
        if subscription.is_tag:
            return subscription.codes, None
        known = self._filters.get(header.consumer_group, header.topic)
        if known is None:
            raise RemotingError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if known.client_version < header.sub_version:
            raise RemotingError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        return None, self._property_filter(header.topic, known.expression, known.expression_type)

    def _property_filter(
        self, topic: str, expression: str, expression_type: str | None
    ) -> PropertyFilter:
        """Return a compiled filter, which is cached while it is in use.

        Raises SqlSyntaxError.
        """
        if not self._config.enable_property_filter:
            raise filter_not_supported(expression_type)
        if self._config.filter_support_retry and topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            accept = partial(self._filters.accept_retried, group)
            accept.cost = self._filters.cost_of(group)  # type: ignore[attr-defined]
            return accept
        return ready_filter(expression, expression_type)


def _refusal(error: RemotingError) -> Response:
    header = PullMessageResponseHeader()
    if isinstance(error, PullRefused):
        header.forbidden_type = error.forbidden_type
    return Response(error.code, error.remark, header)


def _missing(field: str, flag: int) -> RemotingError:
    return RemotingError(
        ResponseCode.SYSTEM_ERROR,
        f"the field {field} is missing, and sysFlag has bit {flag}, which needs it",
    )
