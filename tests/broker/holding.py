"""A hold service over a store and connections that tests command."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from pocketmq.broker.waiting.filter_work import PropertyFilter
from pocketmq.broker.waiting.hold_service import ArrivalListener, HoldService
from pocketmq.remoting.headers import PullMessageRequestHeader
from pocketmq.remoting.serving.request import Request

TOPIC, QUEUE = "T", 0
A, B = 65, 66  # tag hashes


class FakeStore:
    """Queues that only know their end and their listeners."""

    def __init__(self) -> None:
        self.listeners: dict[tuple[str, int], list[ArrivalListener]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        #: Called first by `max_offset`, as a real store enters messages there.
        self.before_max_offset: Callable[[], None] = lambda: None

    def listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        self.listeners.setdefault((topic, queue_id), []).append(listener)

    def unlisten(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        listeners = self.listeners[topic, queue_id]
        listeners.remove(listener)
        if not listeners:
            del self.listeners[topic, queue_id]

    def max_offset(self, topic: str, queue_id: int) -> int:
        self.before_max_offset()
        return self.ends.get((topic, queue_id), 0)

    def properties_at(self, topic: str, queue_id: int, offset: int) -> dict[str, str] | None:
        raise NotImplementedError  # a test that looks at properties says them

    def append(self, tags_code: int = 0, queue_id: int = QUEUE) -> None:
        offset = self.ends.get((TOPIC, queue_id), 0)
        self.ends[TOPIC, queue_id] = offset + 1
        for listener in list(self.listeners.get((TOPIC, queue_id), ())):
            listener(offset, tags_code, 0)


class FakeConnection:
    """A client's connection that can go away."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.peer = (address, 4711)
        self.closed = False
        self.attributes: dict[str, Any] = {}
        self.callbacks: list[Callable[[Any], None]] = []

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        self.closed = True
        for callback in self.callbacks:
            callback(self)


_opaques = itertools.count(1)


def pull(connection: FakeConnection) -> Request[Any]:
    header = PullMessageRequestHeader("G", TOPIC, QUEUE, 0, 32, 2, 0, 15_000, 0)
    return Request(
        code=11,
        header=header,
        opaque=next(_opaques),
        connection=connection,  # type: ignore[arg-type]
        channel=connection,  # type: ignore[arg-type]
    )


class Holding:
    """A hold service over a fake store, and the requests it executed again."""

    def __init__(self, limit: int = 100) -> None:
        self.store = FakeStore()
        self.executed: list[Request[Any]] = []
        self.answer_size = 100
        self.changed = asyncio.Event()
        self.service = HoldService(self.store, self._execute, limit=limit)

    def _execute(self, request: Request[Any]) -> int:
        self.executed.append(request)
        self.changed.set()
        return self.answer_size

    def hold(
        self,
        connection: FakeConnection,
        *,
        offset: int = 0,
        codes: frozenset[int] | None = None,
        timeout_ms: int = 60_000,
        queue_id: int = QUEUE,
        accept: PropertyFilter | None = None,
    ) -> Request[Any]:
        request = pull(connection)
        assert self.service.hold(request, TOPIC, queue_id, offset, codes, timeout_ms, accept)
        return request

    def assert_nothing_left(self) -> None:
        assert len(self.service) == 0
        for _, queue_id in tuple(self.store.listeners):
            self.store.append(queue_id=queue_id)  # the first one that nobody waits for
        assert self.store.listeners == {}
