"""Tells the members of consumer groups that others have joined or left."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq.broker.background import CallLater, Timer, call_later
from pocketmq.broker.tables.consumer_groups import ClientInfo, ConsumerGroup
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import NotifyConsumerIdsChangedRequestHeader

#: Members that are told in one turn of the event loop, which takes 2 ms.
_AT_ONCE: Final = 64
#: Seconds, for each member, until a group is told again: that takes a tenth of the event loop's
#: time at most.
_PAUSE: Final = 0.0004


class MemberNotices:
    """Sends NOTIFY_CONSUMER_IDS_CHANGED, while `wanted()`.

    A change is told at once. Those that follow are told together after a pause: if a thousand
    clients join or leave at one moment, each of the others is told twice, and not a thousand times.
    Reference: DefaultConsumerIdsChangeListener, which tells all of them of each.
    """

    def __init__(self, wanted: Callable[[], bool], call_later: CallLater = call_later) -> None:
        self._wanted = wanted
        self._call_later = call_later
        self._due: dict[str, ConsumerGroup] = {}
        self._group: ConsumerGroup | None = None  # it is being told, these are left
        self._left: deque[ClientInfo] = deque()
        self._resting: dict[str, Timer] = {}
        self._changed: dict[str, ConsumerGroup] = {}  # since they were told last
        self._step_due = False

    def changed(self, group: ConsumerGroup) -> None:
        """Tell the members of a group soon."""
        if not self._wanted():
            return
        told = self._group is not None and self._group.name == group.name
        if told or group.name in self._resting:
            self._changed[group.name] = group
        else:
            self._due[group.name] = group
            self._step_soon()

    def stop(self) -> None:
        """Tell nobody any more."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        self._group = None
        self._left.clear()
        self._due.clear()
        self._changed.clear()

    def _step_soon(self) -> None:
        if not self._step_due:
            self._step_due = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._step_due = False
        for _ in range(_AT_ONCE):
            if self._group is None:
                if not self._due:
                    return
                name = next(iter(self._due))
                self._group = self._due.pop(name)
                self._left.extend(self._group.clients.values())
            if self._left:
                self._tell(self._group, self._left.popleft())
            else:
                self._rest(self._group)
                self._group = None
        self._step_soon()

    def _tell(self, group: ConsumerGroup, client: ClientInfo) -> None:
        if group.clients.get(client.connection) is client and client.may_consume(group.name):
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            # If the connection is closing, its close callback removes the client.
            with contextlib.suppress(RemotingError):
                client.connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    def _rest(self, group: ConsumerGroup) -> None:
        pause = _PAUSE * len(group.clients)
        self._resting[group.name] = self._call_later(pause, partial(self._rested, group.name))

    def _rested(self, name: str) -> None:
        del self._resting[name]
        group = self._changed.pop(name, None)
        if group is not None:
            self._due[name] = group
            self._step_soon()
