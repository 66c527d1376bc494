"""Makes chosen requests fail, wait, or stay without an answer, by wrapping their handlers.

The handlers run in the servers' thread. Tests add and remove faults from their own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import difflib
import threading
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from pocketmq.remoting.frames.frame import decode_command
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

#: Whether a fault applies to a request, whose `header` is the typed one of its code
#: (remoting.headers).
When = Callable[[Request[Any]], bool]


def code_of(kind: type[IntEnum], code: int | str) -> int:
    """The number of a code that is given as a member of `kind`, its name, or a number."""
    if isinstance(code, bool) or not isinstance(code, int | str):
        raise TypeError(f"code is {code!r}; allowed are a {kind.__name__}, its name, or an int")
    if isinstance(code, int):
        return int(code)
    if code not in kind.__members__:
        near = difflib.get_close_matches(code.upper(), kind.__members__, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"code is {code!r}, which is not the name of a {kind.__name__}{hint}")
    return int(kind[code])


class Held:
    """Pending requests. `count`: how many are pending now."""

    def __init__(self) -> None:
        self.count = 0
        self._released = False
        self._lock = threading.Lock()
        #: What the requests wait for, in the servers' loop, and what tests wait for, anywhere.
        self._requests: list[concurrent.futures.Future[None]] = []
        self._tests: list[tuple[int, concurrent.futures.Future[None]]] = []

    async def arrived(self, count: int = 1) -> None:
        """Wait until at least `count` requests are pending."""
        await asyncio.wrap_future(self._arrival(count))

    def wait(self, count: int = 1, timeout: float = 10.0) -> None:
        """Do as `arrived`, in a synchronous test; raises TimeoutError after `timeout` seconds."""
        try:
            self._arrival(count).result(timeout)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(
                f"{self.count} of {count} requests arrived within {timeout} s"
            ) from None

    def release(self) -> None:
        """Let the pending and all later requests be served."""
        with self._lock:
            self._released = True
            waiting, self._requests = self._requests, []
        for request in waiting:
            _finish(request)

    def _arrival(self, count: int) -> concurrent.futures.Future[None]:
        arrival: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            if self.count >= count:
                arrival.set_result(None)
            else:
                self._tests.append((count, arrival))
        return arrival

    async def _wait(self) -> None:
        release: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            self.count += 1
            there = [waiting for count, waiting in self._tests if count <= self.count]
            self._tests = [(count, w) for count, w in self._tests if count > self.count]
            if self._released:
                release.set_result(None)
            else:
                self._requests.append(release)
        for waiting in there:
            _finish(waiting)
        try:
            await asyncio.wrap_future(release)
        finally:
            with self._lock:
                self.count -= 1
                if release in self._requests:
                    self._requests.remove(release)


def _finish(future: concurrent.futures.Future[None]) -> None:
    if future.set_running_or_notify_cancel():  # nobody waits any more for a cancelled one
        future.set_result(None)


class Fault:
    """One rule: what happens to matching requests, `times` times (None: always)."""

    def __init__(
        self,
        act: Callable[[Request[Any], Handler], Answer],
        when: When | None,
        times: int | None,
    ) -> None:
        if times is not None and (isinstance(times, bool) or not isinstance(times, int)):
            raise TypeError(f"times is {times!r}; allowed are None and whole numbers from 1 on")
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; allowed are None and whole numbers from 1 on")
        self.act = act
        self.when = when
        self.times = times

    @classmethod
    def answering(cls, response: Response, when: When | None, times: int | None) -> Fault:
        """Answer with `response`, without serving the request."""
        return cls(lambda _request, _serve: response, when, times)

    @classmethod
    def ignoring(cls, when: When | None, times: int | None) -> Fault:
        """Neither serve nor answer."""
        return cls(lambda _request, _serve: None, when, times)

    @classmethod
    def holding(cls, held: Held, when: When | None, times: int | None) -> Fault:
        """Serve the requests only when they are released."""

        async def act(request: Request[Any], serve: Handler) -> Response | None:
            await held._wait()
            answer = serve(request)
            if isinstance(answer, bytes):
                # A prepared frame; what comes later comes as a response.
                stored = decode_command(answer[4:])
                return Response(
                    stored.code, stored.remark, body=stored.body, ext_fields=stored.ext_fields
                )
            return answer if answer is None or isinstance(answer, Response) else await answer

        return cls(act, when, times)

    def takes(self, request: Request[Any]) -> bool:
        if self.times == 0 or (self.when is not None and not self.when(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The active rules, by request code; the newest one that matches a request decides."""

    def __init__(self) -> None:
        # Tuples are replaced as a whole: a test's `when` may run while a rule is added.
        self._by_code: dict[int, tuple[Fault, ...]] = {}
        self._dispatchers: list[Dispatcher] = []

    def attach(self, dispatchers: Iterable[Dispatcher]) -> None:
        """Act in these dispatchers instead of the previous ones."""
        # A restarted broker has a new one; the name server's is in use already.
        acting, self._dispatchers = self._dispatchers, list(dispatchers)
        new = [dispatcher for dispatcher in self._dispatchers if dispatcher not in acting]
        for code in self._by_code:
            self._wrap(code, new)

    def add(self, code: int, fault: Fault) -> None:
        """Add a rule, which takes precedence over the existing ones."""
        if code not in self._by_code:
            if not any(code in dispatcher.codes for dispatcher in self._dispatchers):
                raise ValueError(f"code is {code}, which neither broker nor name server serves")
            self._wrap(code, self._dispatchers)
        self._by_code[code] = (fault, *self._by_code.get(code, ()))

    def remove(self, code: int, fault: Fault) -> None:
        """Remove a rule."""
        self._by_code[code] = tuple(other for other in self._by_code[code] if other is not fault)

    def _wrap(self, code: int, dispatchers: Iterable[Dispatcher]) -> None:
        def wrapper(serve: Handler) -> Handler:
            def handle(request: Request[Any]) -> Answer:
                for fault in self._by_code.get(code, ()):
                    if fault.takes(request):
                        return fault.act(request, serve)
                return serve(request)

            return handle

        for dispatcher in dispatchers:
            if code in dispatcher.codes:
                dispatcher.wrap(code, wrapper)
