"""Calls the application's handlers with their messages."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from types import CoroutineType

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch import eager_start
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService
from pocketmq.client.consumer.dispatch.expired_requests import MARK, ExpiredRequests
from pocketmq.client.consumer.dispatch.handlers import AnyHandler, Batched, is_failure
from pocketmq.client.consumer.dispatch.outcomes import Outcomes
from pocketmq.client.reconsume_later import ReconsumeLater


class HandlerCalls:
    """Calls the handler of each message's topic, and reports the outcome.

    `handlers`: by the application's topic name.
    """

    def __init__(
        self,
        handlers: Mapping[str, AnyHandler],
        service: ConsumeService,
        outcomes: Outcomes,
        expired: ExpiredRequests,
    ) -> None:
        self.handlers = handlers
        self._drops = expired.drops
        self._hooks = outcomes.hooks
        self._service = service
        self._outcomes = outcomes

    def consume(self, message: ConsumedMessage) -> Awaitable[None] | None:
        """Begin to consume a message.

        Return None if it has already succeeded, which is not reported; else an awaitable, which
        reports the outcome and raises only cancellations.
        """
        if message.properties_bytes.find(MARK) >= 0 and self._drops(message):
            return None
        handler = self.handlers.get(message.topic)
        if handler is None or type(handler) is Batched or self._hooks:
            return self._consume_observed(message, handler)
        try:
            result = handler(message)  # type: ignore[operator]  # it is not a Batched
            if type(result) is CoroutineType:
                # Many handlers end without waiting: this saves a quarter of the time of a message.
                rest = eager_start.start(result)
                return None if rest is None else self._await(message, rest)
        except BaseException as error:
            if not is_failure(error):
                self._outcomes.lost(message, error)
                raise
            return self._service.failed(message, error)
        if result is not None and inspect.isawaitable(result):
            return self._await(message, result)
        return None

    async def _await(self, message: ConsumedMessage, result: Awaitable[object]) -> None:
        try:
            await result
        except BaseException as error:
            if not is_failure(error):
                raise
            await self._service.failed(message, error)
        else:
            self._service.succeeded(message)

    async def _consume_observed(self, first: ConsumedMessage, handler: AnyHandler | None) -> None:
        messages = [first]
        if isinstance(handler, Batched):
            for message in self._service.take_more(first, handler.size - 1):
                if message.properties_bytes.find(MARK) >= 0 and self._drops(message):
                    self._service.succeeded(message)
                else:
                    messages.append(message)
        work = await self._outcomes.begin(messages)
        try:
            # A copy: the handler may change its list.
            await self._call(list(messages))
        except BaseException as error:
            if not is_failure(error):
                raise
            await self._outcomes.end(first, error)
            await self._outcomes.failed_together(work.messages, error)
        else:
            await self._outcomes.end(first, None)
            for message in work.messages:
                self._service.succeeded(message)
        self._outcomes.forget(first)

    async def work(self, message: ConsumedMessage) -> object:
        """Call a message's handler with it alone; raises the handler's errors."""
        return await self._call([message])

    async def _call(self, messages: list[ConsumedMessage]) -> object:
        handler = self.handlers.get(messages[0].topic)
        if handler is None:
            raise ReconsumeLater(f"there is no handler for topic {messages[0].topic}")
        if isinstance(handler, Batched):
            return await handler.work(messages)
        result = handler(messages[0])
        if inspect.isawaitable(result):
            result = await result
        return result
