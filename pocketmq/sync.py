"""The clients for scripts without asyncio: the same classes, whose calls wait.

    from pocketmq import Message, sync

    with sync.Producer("orders", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("orders", b"..."))

Nothing is implemented here a second time. Each class is made from its asyncio one: a client has an
event loop in a thread of its own, each coroutine method becomes a method that runs there and waits
for the result, asynchronous iterators and contexts become plain ones, and everything else (options,
docstrings, errors) is what it was. Several threads may use one client.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

from client import admin
from client.consumer import pull
from client.errors import NotRunning
from client.producer import producer, transaction

__all__ = ["Admin", "Producer", "PullConsumer", "SyncClient", "TransactionProducer"]


class _LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pocketmq.sync", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine. An interrupt (Ctrl-C) while it is waited for cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the client's own thread: use the asyncio class here")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncClient:
    """What the classes of this module have in common: an asyncio client, and its loop.

    The loop runs from `start` (or `with`) to `shutdown`.
    """

    _async_class: type

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = self._async_class(*args, **options)
        self._thread: _LoopThread | None = None

    def start(self) -> None:
        """Begin; what `with` does. Raises NotRunning after a shutdown."""
        if self._thread is None:
            self._thread = _LoopThread()
        try:
            self._run(self._client.start())
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """End; what leaving `with` does. May be called again without effect."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._client.shutdown())
            finally:
                thread.close()

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                # Not `shutdown`: some clients care about why they are left.
                thread.run(self._client.__aexit__(*error))
            finally:
                thread.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._client, name, value)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._thread is None:
            work.close()
            raise NotRunning(type(self).__name__)
        return self._thread.run(work)

    def _plain(self, result: Any) -> Any:
        """What a method gave, made usable without asyncio."""
        if hasattr(result, "__aenter__"):
            return _Context(self, result)
        if isinstance(result, AsyncIterator):
            return _iterate(self, result)
        if inspect.isawaitable(result):
            return _Later(self, result)
        return result


class _Context:
    """An asynchronous context as a plain one."""

    def __init__(self, owner: SyncClient, context: Any) -> None:
        self._owner = owner
        self._context = context

    def __enter__(self) -> Any:
        return self._owner._run(self._context.__aenter__())

    def __exit__(self, *error: object) -> Any:
        return self._owner._run(self._context.__aexit__(*error))


class _Later:
    """An awaitable whose result can be waited for."""

    def __init__(self, owner: SyncClient, awaitable: Awaitable[Any]) -> None:
        self._owner = owner
        self._awaitable = awaitable

    def result(self) -> Any:
        """Wait for it; its result, or its exception."""

        async def wait() -> Any:
            return await self._awaitable

        return self._owner._run(wait())


def _iterate(owner: SyncClient, items: AsyncIterator[Any]) -> Iterator[Any]:
    async def following() -> Any:
        return await anext(items, _END)

    while (item := owner._run(following())) is not _END:
        yield item


_END = object()


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: SyncClient, *args: Any, **options: Any) -> Any:
        method = getattr(self._client, name)
        if inspect.iscoroutinefunction(function):
            return self._plain(self._run(method(*args, **options)))
        return self._plain(method(*args, **options))

    return call


def _made_from(async_class: type) -> type[SyncClient]:
    """The class for scripts: one method for each public one that needs the loop."""
    body: dict[str, Any] = {"_async_class": async_class, "__doc__": async_class.__doc__}
    for name, function in inspect.getmembers(async_class, inspect.isfunction):
        if not name.startswith("_") and not hasattr(SyncClient, name):
            body[name] = _method(name, function)
    if hasattr(async_class, "__aiter__"):
        body["__iter__"] = lambda self: _iterate(self, self._client.__aiter__())
    body["__module__"] = __name__
    return type(async_class.__name__, (SyncClient,), body)


Admin = _made_from(admin.Admin)
Producer = _made_from(producer.Producer)
PullConsumer = _made_from(pull.PullConsumer)
TransactionProducer = _made_from(transaction.TransactionProducer)
