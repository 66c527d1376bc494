"""Clients and their groups: heartbeats (34), unregistration (35), members (38), checks (46).

Reference: broker ClientManageProcessor, ConsumerManageProcessor.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.client_ids import ClientIds
from pocketmq.broker.tables.consumer_filter import (
    NewExpressions,
    NotCompiled,
    filter_not_supported,
    is_tag_type,
    ready_filter,
)
from pocketmq.broker.tables.consumer_groups import CONSUME_ACTIVELY, ClientInfo, ConsumerGroups
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.waiting.compile_queue import CompileQueue
from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import MAX_GROUP_LENGTH, RETRY_PREFIX
from pocketmq.message.sql_filter import SqlSyntaxError
from pocketmq.remoting.bodies.consumer import GetConsumerListByGroupResponseBody
from pocketmq.remoting.bodies.heartbeat import CheckClientRequestBody, ConsumerData, HeartbeatData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    GetConsumerListByGroupRequestHeader,
    Header,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps, at_once, in_pieces
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)

UNIT_SUBSCRIPTION_TOPIC = 2  # topicSysFlag bit
MAX_CLIENT_ID: Final = 512  # characters; as in the proxy
_MAX_LANGUAGE: Final = 32  # characters; it may come from a header of 256 KiB
#: Groups that are registered in one turn; a consumer group that is new takes 0.1 ms.
_USUAL_GROUPS: Final = 64
#: Subscriptions that are registered in the turn in which their permission is checked.
_USUAL_SUBSCRIPTIONS: Final = 1_000
_PRODUCERS_OF_STEP: Final = 128  # a third of a millisecond


class ClientProcessor:
    """Client requests of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        producers: ProducerGroups,
        client_ids: ClientIds,
        compiling: CompileQueue,
        clock: MonotonicClock,
        long: LongRequests,
    ) -> None:
        self._config = config
        self._long = long
        self._log = LimitedLog(log)
        # The heartbeats and unregistrations of a connection that are not done.
        self._late: Counter[Any] = Counter()
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._client_ids = client_ids
        self._compiling = compiling
        self._clock = clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the client codes here."""
        dispatcher.register(RequestCode.HEART_BEAT, self.heartbeat)
        dispatcher.register(
            RequestCode.UNREGISTER_CLIENT, self.unregister, UnregisterClientRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            self.consumer_list,
            GetConsumerListByGroupRequestHeader,
        )
        dispatcher.register(RequestCode.CHECK_CLIENT_CONFIG, self.check_config)

    def heartbeat(self, request: Request[Header]) -> Response | None:
        """Register a client with its consumer and producer groups."""
        data = HeartbeatData.of(request)
        _check_lengths(data.client_id, [each.group_name for each in data.consumer_data_set])
        new = NewExpressions()
        for consumer in data.consumer_data_set:
            self._consumers.find_new(consumer, new)
        if texts := new.to_compile():
            self._compiling.then(request, partial(self._heartbeat, new=new), *texts)
            return None
        return self._heartbeat(request, data, new=new)

    def _heartbeat(
        self, request: Request[Header], data: HeartbeatData | None = None, *, new: NewExpressions
    ) -> Response | None:
        if data is None:
            data = HeartbeatData.of(request)
        groups = len(data.consumer_data_set) + len(data.producer_data_set)
        subscriptions = sum(len(each.subscription_data_set) for each in data.consumer_data_set)
        is_usual = groups <= _USUAL_GROUPS and subscriptions <= _USUAL_SUBSCRIPTIONS
        if is_usual and request.connection not in self._late:
            return at_once(self._register(request, data, new))
        # It is decoded again when it is its turn: until then, only its bytes are counted.
        self._later(request, self._register(request, None, new))
        return None

    def _later(self, request: Request[Any], steps: Steps[Response]) -> None:
        """Execute this after what the connection sent before it, and reply."""
        # Not returned: the dispatcher begins what is returned after other requests of the
        # connection, or refuses it.
        self._late[request.connection] += 1
        request.connection.spawn(request, self._executed(request, steps))

    async def _executed(self, request: Request[Any], steps: Steps[Response]) -> Response:
        try:
            # Ends early if the connection is closed: its groups have been removed, and none may
            # follow.
            return await self._long.run(request, steps)
        except RemotingError as error:
            return Response(error.code, error.remark)
        except Exception as error:
            self._log.exception("a request %d that took long failed", request.code)
            return Response(ResponseCode.SYSTEM_ERROR, unexpected(error))
        finally:
            self._late[request.connection] -= 1
            if not self._late[request.connection]:
                del self._late[request.connection]

    def _register(
        self, request: Request[Header], data: HeartbeatData | None, new: NewExpressions
    ) -> Steps[Response]:
        if data is None:
            data = HeartbeatData.of(request)
            yield
        data.need("clientID", data.client_id)
        names = [consumer.group_name for consumer in data.consumer_data_set]
        names += [producer.group_name for producer in data.producer_data_set]
        if names and not any(names):
            data.need("groupName", "")
        _check_lengths(data.client_id, names)
        self._client_ids.claim(data.client_id, request.connection, request.caller)
        client = ClientInfo(
            request.connection,
            data.client_id,
            request.language[:_MAX_LANGUAGE],
            request.version,
            self._clock(),
            request.caller,
        )
        fingerprint = data.heartbeat_fingerprint
        changed = False
        for consumer in data.consumer_data_set:
            if (
                self._config.reject_pull_consumer_enable
                and consumer.consume_type == CONSUME_ACTIVELY
            ):
                continue  # its pulls are answered with the error
            changed |= self._heartbeat_consumer(
                consumer, client, fingerprint, data.without_sub, new
            )
            yield
        for producers in in_pieces(data.producer_data_set, _PRODUCERS_OF_STEP):
            for producer in producers:
                self._producers.register(producer.group_name, client)
            yield
        # Without a fingerprint (heartbeat v1), the client must always send everything.
        return Response(
            header=HeartbeatResponseHeader(
                is_sub_change=changed if fingerprint else True, is_support_batch_protocol=True
            )
        )

    def _heartbeat_consumer(
        self,
        consumer: ConsumerData,
        client: ClientInfo,
        fingerprint: int,
        without_sub: bool,
        new: NewExpressions,
    ) -> bool:
        try:
            group = self._groups.find_any(consumer.group_name, client.connection)
        except RemotingError:
            return False  # too many new groups: the next heartbeat registers the rest
        if group is None:
            return False  # unknown, and may not be created: skip it silently
        ordered = any(
            (topic := self._topics.get(subscription.topic)) is not None and topic.order
            for subscription in consumer.subscription_data_set
        )
        if not self._groups.is_light(consumer.group_name):
            self._topics.create_if_absent(
                RETRY_PREFIX + consumer.group_name,
                group.retry_queue_nums,
                sys_flag=UNIT_SUBSCRIPTION_TOPIC if consumer.unit_mode else 0,
                order=ordered,
            )
        return self._consumers.register(
            consumer,
            client,
            notify_enabled=group.notify_consumer_ids_changed_enable,
            fingerprint=fingerprint,
            with_subscriptions=not (fingerprint and without_sub),
            new=new,
        )

    def unregister(self, request: Request[UnregisterClientRequestHeader]) -> Response | None:
        """Remove a client from a producer group, a consumer group, or both."""
        if request.connection not in self._late:
            return at_once(self._unregister(request))
        self._later(request, self._unregister(request))
        return None

    def _unregister(self, request: Request[UnregisterClientRequestHeader]) -> Steps[Response]:
        header = request.header
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, request.connection)
        yield
        if header.consumer_group is not None:
            group = self._groups.table.get(header.consumer_group)
            self._consumers.unregister(
                header.consumer_group,
                request.connection,
                notify_enabled=group is None or group.notify_consumer_ids_changed_enable,
            )
        return Response()

    def consumer_list(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        """Return the client ids of a group, by which its members divide the queues."""
        name = request.header.consumer_group
        group = self._consumers.get(name)
        if group is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return Response(body=body.encode())

    def check_config(self, request: Request[Header]) -> Response | None:
        """Check that the broker supports a subscription: by tags or, if enabled, by SQL92."""
        if not request.body:
            return Response()  # nothing to check
        data = CheckClientRequestBody.of(request)
        subscription = data.subscription_data
        if is_tag_type(subscription.expression_type):
            return Response()
        if not self._config.enable_property_filter:
            raise filter_not_supported(subscription.expression_type)
        try:
            ready_filter(subscription.sub_string, subscription.expression_type)
        except NotCompiled as new:
            self._compiling.then(request, self.check_config, new.text)
            return None
        except SqlSyntaxError as error:
            return Response(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}"
            )
        return Response()


def _check_lengths(client_id: str, groups: Iterable[str]) -> None:
    """Refuse names that are too long, because any client can fill the tables with heartbeats."""
    length = max(map(len, groups), default=0)
    if len(client_id) > MAX_CLIENT_ID or length > MAX_GROUP_LENGTH:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"a client id has at most {MAX_CLIENT_ID} characters, and a group {MAX_GROUP_LENGTH}",
        )
