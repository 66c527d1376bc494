"""The push consumer for scripts: its handlers are plain functions that run in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from pocketmq.client.consumer import consumed_message, push
from pocketmq.client.consumer.stop_signals import PlainStopSignals
from pocketmq.client.errors import NotRunning
from pocketmq.client.parameters import Seconds
from pocketmq.sync_client import SyncClient, iterate


class ConsumedMessage(consumed_message.ConsumedMessage):
    """A received message to acknowledge.

        for message in consumer:
            with message:
                ...

    Like client.consumer.consumed_message.ConsumedMessage, but its calls block. Any thread except
    the client's own may report the outcome.
    """

    owner: Any = None

    def ack(self) -> None:
        """Acknowledge the message. Its offset is stored with the next commit."""
        owner: PushClient = self.owner
        owner._call(consumed_message.ConsumedMessage.ack, self)

    def reconsume(  # type: ignore[override]
        self, delay_level: int = 0, *, error: Exception | None = None
    ) -> None:
        """Redeliver the message; the arguments are those of the asyncio class."""
        owner: PushClient = self.owner
        owner._run(consumed_message.ConsumedMessage.reconsume(self, delay_level, error=error))

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
    # The wrapped consumer: its handlers are plain functions, called in threads, and other threads
    # may report the outcome of its messages.
    __doc__ = push.PushConsumer.__doc__
    _message_type = ConsumedMessage
    #: Set by the wrapper.
    in_thread: Callable[[Any], Any]

    def _adapt(self, function: Any) -> Any:
        return self.in_thread(function)


class PushClient(SyncClient):
    """The parts of a wrapped PushConsumer that are not generated.

    Up to `concurrency` handlers run at a time, each in a thread. A thread cannot be stopped from
    outside: a handler that exceeds `consume_timeout` or `shutdown_timeout` keeps running, and its
    message is redelivered. Hooks and `on_event` are called in the client's own thread.
    """

    _client: PushConsumer

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        default = inspect.signature(push.PushConsumer).parameters["concurrency"].default
        self._concurrency = options.get("concurrency", default)
        self._threads: ThreadPoolExecutor | None = None
        self._here = threading.local()
        self._client.in_thread = self._in_thread

    def run(self, *, timeout: Seconds | None = None, handle_signals: bool = True) -> None:
        """Consume until SIGTERM, Ctrl-C, or `shutdown` by a handler or another thread.

        Arguments and errors are those of the asyncio class.
        """
        self._open()
        stop = functools.partial(self._begin, self._client._stop_now)
        hurry = functools.partial(self._begin, self._client._hurry_now)
        try:
            with PlainStopSignals(stop, hurry, enabled=handle_signals):
                self._run(self._client.run(timeout=timeout, handle_signals=False))
        finally:
            super().shutdown()

    def _begin(self, function: Callable[[], object]) -> None:
        """Schedule a call in the client's thread; do not wait for it."""
        thread = self._thread
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                thread.loop.call_soon_threadsafe(function)

    def shutdown(self) -> None:
        """Stop the client, as leaving `with` does. Called by a handler, it only requests the stop,
        because the handler has to return first."""
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
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown(wait=False)

    def _in_thread(self, function: Callable[..., object]) -> Callable[..., Any]:
        """Wrap the function for the consumer, which calls it in its event loop."""
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function.__name__} is a coroutine function: pocketmq.sync takes plain "
                "functions; use it with the asyncio class"
            )

        def work(*given: Any) -> object:
            self._here.working = True
            try:
                return function(*given)
            except (SystemExit, KeyboardInterrupt) as error:
                # In a thread this ends only its own work; in the loop it would end the client.
                raise RuntimeError(f"the handler raised {error!r}") from error

        async def handle(*given: Any) -> object:
            messages = given[0]
            for message in messages if isinstance(messages, list) else (messages,):
                message.owner = self
            loop = asyncio.get_running_loop()
            # Context that a hook has set, such as a span, applies in the thread too.
            context = contextvars.copy_context()
            return await loop.run_in_executor(self._executor(), context.run, work, *given)

        # The consumer checks the arguments against the function's own signature.
        handle.__signature__ = _signature(function)  # type: ignore[attr-defined]
        return handle

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._concurrency, thread_name_prefix="pocketmq.sync handler"
            )
        return self._threads


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None  # some built-in functions have none
