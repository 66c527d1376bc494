"""The push consumer for scripts: its handlers are plain functions that run in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from pocketmq.client.consumer import consumed_message, push
from pocketmq.client.errors import NotRunning
from pocketmq.sync_client import SyncClient, iterate

__all__ = ["ConsumedMessage", "PushClient", "PushConsumer"]


class ConsumedMessage(consumed_message.ConsumedMessage):
    """A received message that is to be acknowledged.

        for message in consumer:
            with message:
                ...

    As client.consumer.consumed_message.ConsumedMessage, whose calls wait here. It may be told of
    its outcome by any thread but the client's own.
    """

    owner: Any = None

    def ack(self) -> None:
        """The message is done. Its offset is stored with the next commit."""
        owner: PushClient = self.owner
        owner._call(consumed_message.ConsumedMessage.ack, self)

    def reconsume(self, delay_level: int = 0) -> None:  # type: ignore[override]
        """Have it delivered again; `delay_level` as in ReconsumeLater."""
        owner: PushClient = self.owner
        owner._run(consumed_message.ConsumedMessage.reconsume(self, delay_level))

    def __enter__(self) -> Self:
        owner: PushClient = self.owner
        owner._run(self.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        owner: PushClient = self.owner
        ended: bool = owner._run(self.__aexit__(kind, error, traceback))
        return ended


class PushConsumer(push.PushConsumer):
    # What the wrapper runs: its messages can be told of their outcome by other threads.
    __doc__ = push.PushConsumer.__doc__
    message_type = ConsumedMessage


class PushClient(SyncClient):
    """What a wrapped PushConsumer does in its own way.

    As many handlers run at a time, each in a thread, as `concurrency` says. A thread can not be
    ended from outside: a handler that outlasts `consume_timeout` or `shutdown_timeout` goes on, and
    its message comes again. Hooks and `on_event` are called in the client's own thread.
    """

    def __init__(self, *args: Any, handler: Any = None, **options: Any) -> None:
        default = inspect.signature(push.PushConsumer).parameters["concurrency"].default
        self._threads = ThreadPoolExecutor(
            options.get("concurrency", default), thread_name_prefix="pocketmq.sync handler"
        )
        self._here = threading.local()
        super().__init__(*args, handler=handler and self._in_thread(handler), **options)

    def on(self, topic: str, *args: Any, **options: Any) -> Any:
        """As PushTopics.on (client.consumer.push_topics), for plain functions."""
        decorate = self._client.on(topic, *args, **options)

        def decorate_plain(function: Any) -> Any:
            self._call(decorate, self._in_thread(function))
            return function

        return decorate_plain

    def subscribe(self, *args: Any, handler: Any = None, **options: Any) -> None:
        """As PushTopics.subscribe (client.consumer.push_topics), with a plain function."""
        handler = handler and self._in_thread(handler)
        self._run(self._client.subscribe(*args, handler=handler, **options))

    def run(self) -> None:
        """Consume until `shutdown` is called by another thread or by a handler, or Ctrl-C."""
        with self:
            self._run(self._client.run())

    def shutdown(self) -> None:
        """End; what leaving `with` does. A handler only asks for it: it has to return first."""
        thread = self._thread
        if getattr(self._here, "working", False):
            if thread is not None:
                with contextlib.suppress(NotRunning):
                    thread.begin(self._client.shutdown())
            return
        super().shutdown()

    def __iter__(self) -> Iterator[ConsumedMessage]:
        for message in iterate(self, self._client.__aiter__()):
            message.owner = self
            yield message

    def _end(self, work: Any) -> None:
        try:
            super()._end(work)
        finally:
            self._threads.shutdown(wait=False)

    def _in_thread(self, function: Callable[[Any], object]) -> Callable[[Any], Any]:
        """The function as the consumer calls it, in its event loop."""
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is a coroutine function: use the asyncio class")

        def work(messages: Any) -> object:
            self._here.working = True
            try:
                return function(messages)
            except (SystemExit, KeyboardInterrupt) as error:
                # In a thread that ends nothing but its work; in the loop it would end the client's.
                raise RuntimeError(f"the handler raised {error!r}") from error

        async def handle(messages: Any) -> object:
            for message in messages if isinstance(messages, list) else (messages,):
                message.owner = self
            loop = asyncio.get_running_loop()
            # What a hook made current, as a span, is current in the thread as well.
            context = contextvars.copy_context()
            return await loop.run_in_executor(self._threads, context.run, work, messages)

        return handle
