"""Assembles the delivery of a push consumer: to handlers, or to the application's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

import msgspec

from pocketmq.client.consumer.dispatch.consume_concurrently import ConsumeConcurrently
from pocketmq.client.consumer.dispatch.consume_orderly import ConsumeOrderly
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService, Queue
from pocketmq.client.consumer.dispatch.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch.expired_requests import ExpiredRequests
from pocketmq.client.consumer.dispatch.failure_policy import FailurePolicy
from pocketmq.client.consumer.dispatch.handler_calls import HandlerCalls
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.dispatch.iteration import Iteration
from pocketmq.client.consumer.dispatch.outcomes import Outcomes
from pocketmq.client.consumer.dispatch.send_back import SendBack
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.dispatch.workers import Workers
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.instance import ClientInstance
from pocketmq.client.observation.consume_hooks import ConsumeHookList
from pocketmq.message.limits import RETRY_PREFIX

#: Redeliveries before a message of a concurrent consumer becomes a dead letter.
MAX_RECONSUME_TIMES = 16
#: The limit that orderly consumers without one send to brokers.
UNLIMITED = 2**31 - 1


class ConsumeOptions(msgspec.Struct, frozen=True):
    """PushConsumer's options with these names. `group` includes the namespace; `policy` has
    `dead_letter_on` and `retry_delays`."""

    group: str
    orderly: bool
    broadcast: bool
    concurrency: int
    max_reconsume_times: int | None
    suspend_current_queue: float
    policy: FailurePolicy
    drop_expired_requests: bool

    @property
    def retry_topic(self) -> str:
        return RETRY_PREFIX + self.group


class Consumption:
    """Consumes the messages that arrive at its service: with workers that call `handlers` (by the
    application's topic name), or, if there are none, with an iteration."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumeOptions,
        handlers: Mapping[str, AnyHandler],
        hooks: ConsumeHookList,
        limiter: PullLimiter,
        pauses: Pauses,
    ) -> None:
        self.names = ShownNames(instance.namespace, options.group)
        self.stats = ConsumeStats(monotonic)
        self.service = _make_service(
            instance, options, handlers, limiter, self.stats, self.names, pauses
        )
        self.outcomes = Outcomes(instance, self.service, self.names, hooks)
        self.expired = ExpiredRequests(options.group, wanted=not options.drop_expired_requests)
        self.calls = HandlerCalls(handlers, self.service, self.outcomes, self.expired)
        self.workers = Workers(
            options.concurrency,
            self.service,
            self.calls.consume,
            instance.spawn,
            self.outcomes.overdue,
            self.outcomes.lost,
            pauses.cancelled_handler,
        )
        self.iteration = Iteration(self.service, self.expired)
        self.service.connect(self.outcomes, self.wake)

    def wake(self) -> None:
        """Consume messages that are ready."""
        if self.calls.handlers:
            self.workers.wake()
        else:
            self.iteration.wake()

    async def expire(self, age: float, queues: Iterable[Queue]) -> None:
        """Fail the messages whose handling has lasted for `age` seconds."""
        if self.calls.handlers:
            self.workers.expire(age)
            return
        limit = monotonic() - age
        late = [
            message
            for pq in queues
            for message in pq.unfinished.values()
            if message.began <= limit and not message.settled
        ]
        for message in late:
            await self.outcomes.overdue(message)

    def stop(self) -> None:
        """Stop delivering messages; iterations end."""
        self.service.stop()
        self.iteration.wake()

    def closed_by(self, task: asyncio.Task[Any] | None) -> None:
        """Do not wait for the messages of this task, which waits for the end of the consumer."""
        self.workers.closed_by(task)
        self.outcomes.closed_by()

    def hurry(self) -> None:
        """Make a current or later `drain` stop waiting for messages in progress."""
        self.workers.hurry()
        self.outcomes.hurry()

    async def drain(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for messages in progress; then cancel the handlers."""
        await self.workers.drain(timeout)
        if self.calls.handlers:
            await self.outcomes.abandon()
        await self.outcomes.drain(timeout, self.workers.closers)


def _make_service(
    instance: ClientInstance,
    options: ConsumeOptions,
    handlers: Mapping[str, AnyHandler],
    limiter: PullLimiter,
    stats: ConsumeStats,
    names: ShownNames,
    pauses: Pauses,
) -> ConsumeService:
    limit = options.max_reconsume_times
    unlimited = UNLIMITED if options.orderly else MAX_RECONSUME_TIMES
    most = unlimited if limit is None else limit
    send_back = None
    if not options.broadcast:
        send_back = SendBack(instance, options.group, most, pauses.send_back_timeout)
    if not options.orderly:
        return ConsumeConcurrently(
            limiter,
            stats,
            names,
            send_back,
            options.policy,
            handlers,
            pauses,
            max_reconsume_times=most,
        )
    return ConsumeOrderly(
        limiter,
        stats,
        names,
        send_back,
        options.policy,
        handlers,
        suspend=options.suspend_current_queue,
        max_reconsume_times=limit,
        locked=not options.broadcast,
    )
