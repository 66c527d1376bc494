"""Telemetry: the stream on which a client sends its settings and gets the server's.

On it, the server also asks for the outcome of a transaction, and for the state of a consumer.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, GrpcError, GrpcStatus, Outgoing
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.checks import group_of, topic_of
from pocketmq.proxy.service.clients import (
    MAX_TOPICS,
    Client,
    Clients,
    client_id_of,
    subscription_data,
)
from pocketmq.proxy.service.message_codec import TransactionPlace, incoming
from pocketmq.proxy.service.metadata import Metadata
from pocketmq.proxy.service.status import ServiceError, code_of, ok, status_of
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger("pocketmq.proxy")

#: Delays of redelivery in seconds, by attempt (CustomizedRetryPolicy of the official broker).
RETRY_DELAYS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
LONG_POLLING_SECONDS: Final = 20
RECEIVE_BATCH: Final = 32


def merged(
    settings: pb.Settings, group: SubscriptionGroupConfig | None, max_body: int
) -> pb.Settings:
    """Return a client's settings completed with the server's; `group` is a consumer's."""
    answer = pb.Settings()
    answer.CopyFrom(settings)
    answer.ClearField("backoff_policy")
    policy = answer.backoff_policy
    if group is None:
        policy.max_attempts = 3
        policy.exponential_backoff.initial.nanos = 10_000_000
        policy.exponential_backoff.max.seconds = 1
        policy.exponential_backoff.multiplier = 2
        answer.publishing.max_body_size = max_body
        answer.publishing.validate_message_type = True
    else:
        policy.max_attempts = group.retry_max_times + 1
        _set_delays(policy, group)
        subscription = answer.subscription
        subscription.fifo = group.consume_message_orderly
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = LONG_POLLING_SECONDS
    # If on, clients would open a separate connection for metrics.
    answer.metric.on = False
    return answer


def _set_delays(policy: pb.RetryPolicy, group: SubscriptionGroupConfig) -> None:
    retry = group.group_retry_policy
    if retry.type == "EXPONENTIAL":
        exponential = retry.exponential_retry_policy
        initial, most, multiplier = (
            (exponential.initial, exponential.max, exponential.multiplier)
            if exponential is not None
            else (5_000, 7_200_000, 2)
        )
        backoff = policy.exponential_backoff
        backoff.initial.seconds, rest = divmod(initial, 1000)
        backoff.initial.nanos = rest * 1_000_000
        backoff.max.seconds, rest = divmod(most, 1000)
        backoff.max.nanos = rest * 1_000_000
        backoff.multiplier = multiplier
        return
    for delay in delays_ms(group):
        policy.customized_backoff.next.add(seconds=delay // 1000, nanos=delay % 1000 * 1_000_000)


def delays_ms(group: SubscriptionGroupConfig) -> list[int]:
    """Return a group's own list of redelivery delays, or the default, in ms."""
    customized = group.group_retry_policy.customized_retry_policy
    if customized is not None and customized.next:
        return customized.next
    return [seconds * 1000 for seconds in RETRY_DELAYS]


class Telemetry:
    """The streams of all clients, and the brokers' requests to them."""

    def __init__(
        self, config: ProxyConfig, metadata: Metadata, access: Access, turns: Turns
    ) -> None:
        self._config = config
        self._turns = turns
        self._metadata = metadata
        self._access = access
        self._log = LimitedLog(log)
        #: Set by the service, because clients and telemetry refer to each other.
        self.clients: Clients
        #: Runs the handling of settings, which queries brokers.
        self.spawn: Any = None

    def open(self, call: Call, outgoing: Outgoing) -> TelemetryStream:
        """Start a stream; it has no client until its settings are accepted. Raises GrpcError."""
        try:
            client_id_of(call)
        except ServiceError as error:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, error.text) from None
        return TelemetryStream(self, call, outgoing)

    async def take_settings(
        self,
        stream: TelemetryStream,
        call: Call,
        settings: pb.Settings,
        outgoing: Outgoing,
    ) -> None:
        """Store a client's settings, register it at brokers, and answer with the server's."""
        await self._turns.next(call.owner)  # they may name a thousand topics
        call.caller = None  # streams are long-lived: the user may have changed since
        try:
            group = await self._checked(call, settings)
            client = self.clients.of(call)
            self.clients.keep_settings(client, settings)
        except Exception as error:
            self._refuse(error, outgoing, call)
            return
        stream.client = client
        # Not earlier: commands must not go to a caller that uses another client's id.
        if outgoing in client.streams:
            client.streams.remove(outgoing)
        if not stream.over:
            client.streams.append(outgoing)
        try:
            await self._turns.next(call.owner, begun=True)
            await client.link.register(client.registration())
        except RemotingError as error:
            # The next heartbeat retries.
            self._log.warning("%s cannot be registered: %s", client.client_id, error)
        answer = merged(settings, group, self._config.max_message_size)
        outgoing.send(pb.TelemetryCommand(status=ok(), settings=answer))

    async def _checked(self, call: Call, settings: pb.Settings) -> SubscriptionGroupConfig | None:
        if settings.HasField("publishing"):
            topics = [topic_of(topic) for topic in settings.publishing.topics]
            _check_count(len(topics))
            self._access.publish(call, *topics)
            return None
        if not settings.HasField("subscription"):
            raise ServiceError(pb.BAD_REQUEST, "the settings have no publishing or subscription")
        subscription = settings.subscription
        group = group_of(subscription.group)
        topics = [topic_of(entry.topic) for entry in subscription.subscriptions]
        _check_count(len(topics))
        self._access.consume(call, group, *topics)
        for entry in subscription.subscriptions:
            subscription_data(entry.topic.name, entry.expression)  # raises for an invalid filter
        return await self._metadata.group(group)

    def _refuse(self, error: Exception, outgoing: Outgoing, call: Call) -> None:
        code, text = code_of(error)
        if code in (pb.UNAUTHORIZED, pb.FORBIDDEN):
            # As in the official proxy: answer without settings, and keep the stream open.
            outgoing.send(pb.TelemetryCommand(status=status_of(error)))
        elif pb.BAD_REQUEST <= code < pb.INTERNAL_ERROR:
            outgoing.end(GrpcError(GrpcStatus.INVALID_ARGUMENT, text))
        else:
            self._log.error("settings of %s failed: %r", call.peer[0], error, cause=code)
            outgoing.end(GrpcError(GrpcStatus.INTERNAL, text))

    # --- what brokers ask -------------------------------------------------------------------------

    async def asked(self, client: Client, request: Request[Any]) -> Response | None:
        """Answer a broker's request to a client."""
        code = request.code
        if code == RequestCode.CHECK_TRANSACTION_STATE:
            self._recover(client, request)
        elif code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return await self._running_info(client, request)
        elif code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return await self._verify(client, request)
        elif code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return Response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request {code} cannot be asked of a client of a proxy",
            )
        return None

    def _recover(self, client: Client, request: Request[Any]) -> None:
        """Ask a producer of the topic for the outcome of a pending transaction."""
        header = request.header
        try:
            record = decode(request.body)
        except RecordError as error:
            self._log.warning("a half message cannot be read: %s", error)
            return
        topic = record.properties.get(names.REAL_TOPIC) or record.topic
        place = TransactionPlace(
            record.properties.get(names.UNIQ_KEY) or header.transaction_id or "",
            header.bname or "",
            header.tran_state_table_offset,
            header.commit_log_offset,
        )
        command = pb.TelemetryCommand(status=ok())
        recover = command.recover_orphaned_transaction_command
        recover.message.CopyFrom(incoming(record, topic, max_body=self._config.max_message_size))
        recover.transaction_id = place.encode()
        if not client.send(command):
            self._log.warning("%s has no stream to check a transaction on", client.client_id)

    async def _running_info(self, client: Client, request: Request[Any]) -> Response:
        info = ConsumerRunningInfo()
        if request.header.jstack_enable:
            answer = await client.command(
                lambda nonce: pb.TelemetryCommand(
                    status=ok(),
                    print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand(nonce=nonce),
                )
            )
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return Response(body=info.encode())

    async def _verify(self, client: Client, request: Request[Any]) -> Response:
        try:
            record = decode(request.body)
        except RecordError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the body is not a message: {error}")
        shown = incoming(record, record.topic, max_body=self._config.max_message_size)
        answer = await client.command(
            lambda nonce: pb.TelemetryCommand(
                status=ok(),
                verify_message_command=pb.VerifyMessageCommand(nonce=nonce, message=shown),
            )
        )
        result = ConsumeMessageDirectlyResult(order=False)
        if answer.status.code not in (pb.OK, pb.CODE_UNSPECIFIED):
            later = answer.status.code == pb.FAILED_TO_CONSUME_MESSAGE
            result.consume_result = "CR_LATER" if later else "CR_THROW_EXCEPTION"
            result.remark = answer.status.message or None
        return Response(body=result.encode())


class TelemetryStream:
    """One stream of one client: `client`, None before its settings are accepted."""

    def __init__(self, telemetry: Telemetry, call: Call, outgoing: Outgoing) -> None:
        self._telemetry = telemetry
        self.client: Client | None = None
        self._call = call
        self._outgoing = outgoing
        self._busy = False
        self._next: pb.Settings | None = None
        self.over = False

    def received(self, message: pb.TelemetryCommand) -> None:
        """Handle a command of the client."""
        client = self.client
        kind = message.WhichOneof("command")
        if kind == "settings":
            # Of settings that arrive meanwhile, only the last ones count.
            self._next = message.settings
            if not self._busy:
                self._busy = True
                self._telemetry.spawn(self._take_settings())
        elif client is None:
            pass  # no request was sent on this stream
        elif kind == "thread_stack_trace":
            client.answered(message.thread_stack_trace.nonce, message)
        elif kind == "verify_message_result":
            client.answered(message.verify_message_result.nonce, message)
        # Other commands are from newer clients, and are ignored.

    async def _take_settings(self) -> None:
        while self._next is not None:
            settings, self._next = self._next, None
            await self._telemetry.take_settings(self, self._call, settings, self._outgoing)
        self._busy = False

    def closed(self) -> None:
        """Handle the end of the stream; the client may open another within two minutes."""
        self.over = True
        client = self.client
        if client is not None and self._outgoing in client.streams:
            client.streams.remove(self._outgoing)


def _check_count(count: int) -> None:
    if count > MAX_TOPICS:
        raise ServiceError(
            pb.BAD_REQUEST, f"the settings name {count} topics; at most {MAX_TOPICS} are allowed"
        )
