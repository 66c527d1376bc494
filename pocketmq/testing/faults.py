"""Makes chosen requests fail, wait, or stay without an answer, by wrapping their handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pocketmq.remoting.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.frame import decode_command
from pocketmq.remoting.request import Request, Response

__all__ = ["Faults", "Held", "When"]

#: Whether a request is meant; its `header` is the typed one of its code (remoting.headers).
When = Callable[[Request[Any]], bool]


class Held:
    """Requests that wait. `count`: how many wait now."""

    def __init__(self) -> None:
        self._released = asyncio.Event()
        self._arrival = asyncio.Event()
        self.count = 0

    async def arrived(self, count: int = 1) -> None:
        """Wait until at least so many requests wait."""
        while self.count < count:
            self._arrival.clear()
            await self._arrival.wait()

    def release(self) -> None:
        """Let those that wait, and all that come later, be served."""
        self._released.set()

    async def _wait(self) -> None:
        self.count += 1
        self._arrival.set()
        try:
            await self._released.wait()
        finally:
            self.count -= 1


class _Fault:
    """One rule: what happens to the requests it means, `times` times (None: always)."""

    def __init__(
        self,
        act: Callable[[Request[Any], Handler], Answer],
        when: When | None,
        times: int | None,
    ) -> None:
        self.act = act
        self.when = when
        self.times = times

    def takes(self, request: Request[Any]) -> bool:
        if self.times == 0 or (self.when is not None and not self.when(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The rules in force, by request code; the newest one that means a request decides."""

    def __init__(self) -> None:
        self._by_code: dict[int, deque[_Fault]] = {}
        self._dispatchers: list[Dispatcher] = []

    def attach(self, dispatchers: Iterable[Dispatcher]) -> None:
        """Act in these dispatchers, and no longer in others."""
        # A restarted broker has a new one; that of the name server acts already.
        acting, self._dispatchers = self._dispatchers, list(dispatchers)
        new = [dispatcher for dispatcher in self._dispatchers if dispatcher not in acting]
        for code in self._by_code:
            self._wrap(code, new)

    @contextlib.contextmanager
    def fail(
        self, code: int, response: Response, when: When | None, times: int | None
    ) -> Iterator[None]:
        """Answer with `response`, without serving the request."""
        with self._rule(code, _Fault(lambda _request, _serve: response, when, times)):
            yield

    @contextlib.contextmanager
    def ignore(self, code: int, when: When | None, times: int | None) -> Iterator[None]:
        """Neither serve nor answer."""
        with self._rule(code, _Fault(lambda _request, _serve: None, when, times)):
            yield

    @contextlib.contextmanager
    def hold(self, code: int, when: When | None, times: int | None) -> Iterator[Held]:
        """Serve the requests only when they are released; at the end they are."""
        held = Held()

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

        with self._rule(code, _Fault(act, when, times)):
            try:
                yield held
            finally:
                held.release()

    @contextlib.contextmanager
    def _rule(self, code: int, fault: _Fault) -> Iterator[None]:
        code = int(code)
        if code not in self._by_code:
            if not any(code in dispatcher.codes for dispatcher in self._dispatchers):
                raise ValueError(f"request code {code} is served by neither broker nor name server")
            self._wrap(code, self._dispatchers)
        faults = self._by_code.setdefault(code, deque())
        faults.appendleft(fault)
        try:
            yield
        finally:
            faults.remove(fault)

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
