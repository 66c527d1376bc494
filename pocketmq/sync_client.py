"""Generates the classes of pocketmq.sync from the asyncio classes.

A client has an event loop in its own thread. A coroutine method becomes a method that runs the
coroutine there and waits for the result; a plain method is called there. Asynchronous iterators and
contexts become plain ones.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from pocketmq.client.errors import FORKED, NotRunning

log = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread until it is closed; `owner` is named in errors."""

    def __init__(self, owner: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._owner = owner
        self._pid = os.getpid()
        self._closed = False
        # Held to start work and to close: work started after the close would never end.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run_loop, name="pocketmq.sync", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        ended = False
        while not ended:
            try:
                self.loop.run_forever()
                ended = True
            except (SystemExit, KeyboardInterrupt):
                # From a hook, for example. Without the loop, callers would wait for ever.
                log.exception("a hook tried to end the process; the client thread continues")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    @property
    def forked(self) -> bool:
        """Whether this is a child process: threads do not survive a fork."""
        return os.getpid() != self._pid

    def begin(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Start a coroutine in the loop. Raises NotRunning after `close` or a fork."""
        if self.forked:
            work.close()
            raise NotRunning(self._owner, FORKED)
        with self._lock:
            if self._closed:
                work.close()
                raise NotRunning(self._owner)
            return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine and return its result. An interrupt (Ctrl-C) cancels it.

        Raises NotRunning when the loop is closed before the coroutine ends.
        """
        if self.is_current:
            work.close()
            raise RuntimeError("this is the client's own thread: use the asyncio class here")
        future = self.begin(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._closed:
                raise NotRunning(self._owner) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel the tasks that still run, and end the thread."""
        with self._lock:
            self._closed = True
            ended = asyncio.run_coroutine_threadsafe(self._end_all(), self.loop)
        ended.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


class SyncClient:
    """The base of the classes of pocketmq.sync: an asyncio client, and its loop.

    The loop runs from `start` (or `with`) to the end of `shutdown`, so handlers that are still
    finishing may use the client.
    """

    _async_class: type

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = self._async_class(*args, **options)
        self._thread: LoopThread | None = None
        self._ending = threading.Lock()

    def start(self) -> None:
        """Start the client, as `with` does. Raises as the asyncio class does."""
        self._open()
        try:
            self._run(self._client.start())
        except BaseException:
            self.shutdown()
            raise

    def _open(self) -> None:
        """Start the event loop, if there is none."""
        if self._thread is None:
            self._thread = LoopThread(type(self).__name__)

    def shutdown(self) -> None:
        """Stop the client, as leaving `with` does. Calling it again has no effect."""
        self._end(lambda: self._client.shutdown())

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        # Not `shutdown`: for some clients it matters which exception ends the block.
        self._end(lambda: self._client.__aexit__(*error))

    def _end(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        thread = self._thread
        if thread is not None and thread.is_current:
            raise RuntimeError("this is the client's own thread: use the asyncio class here")
        if thread is not None and thread.forked:
            self._thread = None  # the parent ends it
            return
        with self._ending:  # a second caller waits for the first
            thread = self._thread
            if thread is None:
                return
            try:
                thread.run(work())
            finally:
                try:
                    thread.close()
                finally:
                    self._thread = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        # In the loop's thread, where nothing changes during the look-up.
        return self._call(getattr, self._client, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._call(setattr, self._client, name, value)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        thread = self._thread
        if thread is None:
            work.close()
            raise NotRunning(type(self).__name__)
        return thread.run(work)

    def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a plain function that must not run concurrently with the loop."""
        thread = self._thread
        if thread is None or thread.is_current:
            return function(*args, **options)

        async def call() -> Any:
            return function(*args, **options)

        return thread.run(call())

    def _plain(self, result: Any) -> Any:
        """Make the result of a method usable without asyncio."""
        if hasattr(result, "__aenter__"):
            return _Context(self, result)
        if isinstance(result, AsyncIterator):
            return iterate(self, result)
        if inspect.isawaitable(result):
            return Later(self, result)
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


class Later(Generic[T]):
    """An awaitable whose result a thread can wait for."""

    def __init__(self, owner: SyncClient, awaitable: Awaitable[T]) -> None:
        self._owner = owner
        self._awaitable = awaitable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._owner!r}: call result()>"

    def result(self) -> T:
        """Wait for the result, and return it or raise its exception."""

        async def wait() -> T:
            return await self._awaitable

        result: T = self._owner._run(wait())
        return result


def iterate(owner: SyncClient, items: AsyncIterator[Any]) -> Iterator[Any]:
    """Yield the items of an asynchronous iterator, until the client is shut down."""

    async def following() -> Any:
        return await anext(items, _END)

    item = owner._run(following())
    while item is not _END:
        yield item
        try:
            item = owner._run(following())
        except NotRunning:  # where an asyncio client raises StopAsyncIteration
            return


_END = object()


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: SyncClient, *args: Any, **options: Any) -> Any:
        method = getattr(self._client, name)
        if inspect.iscoroutinefunction(function):
            return self._plain(self._run(method(*args, **options)))
        return self._plain(self._call(method, *args, **options))

    return call


def _initializer(async_class: type, base: type[SyncClient]) -> Callable[..., None]:
    @functools.wraps(async_class.__init__)  # type: ignore[misc]
    def initialize(self: SyncClient, *args: Any, **options: Any) -> None:
        base.__init__(self, *args, **options)

    return initialize


def made_from(async_class: type, base: type[SyncClient] = SyncClient) -> type[SyncClient]:
    """Return the class for scripts: one method for each public one, except those of `base`."""
    body: dict[str, Any] = {"_async_class": async_class, "__doc__": async_class.__doc__}
    for name, function in inspect.getmembers(async_class, inspect.isfunction):
        if not name.startswith("_") and not hasattr(base, name):
            body[name] = _method(name, function)
    if hasattr(async_class, "__aiter__") and not hasattr(base, "__iter__"):
        body["__iter__"] = lambda self: iterate(self, self._client.__aiter__())
    body["__init__"] = _initializer(async_class, base)
    body["__module__"] = "pocketmq.sync"
    return type(async_class.__name__, (base,), body)
