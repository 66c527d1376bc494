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

    def reconsume(  # type: ignore[override]
        self, delay_level: int = 0, *, error: Exception | None = None
    ) -> None:
        """Have it delivered again; the arguments are those of the asyncio class."""
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
    # What the wrapper runs: its handlers are plain functions, which are called in threads, and its
    # messages can be told of their outcome by other threads.
    __doc__ = push.PushConsumer.__doc__
    _message_type = ConsumedMessage
    #: Set by the wrapper.
    in_thread: Callable[[Any], Any]

    def _adapt(self, function: Any) -> Any:
        return self.in_thread(function)


class PushClient(SyncClient):
    """What a wrapped PushConsumer does in its own way.

    As many handlers run at a time, each in a thread, as `concurrency` says. A thread cannot be
    ended from outside: a handler that outlasts `consume_timeout` or `shutdown_timeout` goes on, and
    its message is redelivered. Hooks and `on_event` are called in the client's own thread.
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
        """Have the client's thread call a function, without waiting for it."""
        thread = self._thread
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended already
                thread.loop.call_soon_threadsafe(function)

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
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown(wait=False)

    def _in_thread(self, function: Callable[..., object]) -> Callable[..., Any]:
        """The function as the consumer calls it, in its event loop."""
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
                # In a thread that ends nothing but its work; in the loop it would end the client's.
                raise RuntimeError(f"the handler raised {error!r}") from error

        async def handle(*given: Any) -> object:
            messages = given[0]
            for message in messages if isinstance(messages, list) else (messages,):
                message.owner = self
            loop = asyncio.get_running_loop()
            # What a hook made current, as a span, is current in the thread as well.
            context = contextvars.copy_context()
            return await loop.run_in_executor(self._executor(), context.run, work, *given)

        # Its arguments are checked as those of the function.
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
