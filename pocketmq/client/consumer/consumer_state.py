"""The state that every consumer shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketmq.client.consumer.sessions import Sessions
from pocketmq.client.parameters import Seconds, seconds
from pocketmq.message.message import MessageQueue


class ConsumerState:
    """The state of a consumer whose sessions have an `assignment`."""

    _sessions: Sessions[Any]

    @property
    def namesrv(self) -> str | Sequence[str] | None:
        """The name servers; a change takes effect at the next `start`."""
        return self._sessions.namesrv

    @namesrv.setter
    def namesrv(self, namesrv: str | Sequence[str] | None) -> None:
        self._sessions.namesrv = namesrv

    @property
    def client_id(self) -> str:
        """The clientId, by which brokers identify this client; it changes with each start."""
        client_id: str = self._sessions.current.instance.client_id
        return client_id

    @property
    def running(self) -> bool:
        """Whether the consumer was started and is not shut down or shutting down."""
        session = self._sessions.present
        return session is not None and session.life.running

    @property
    def healthy(self) -> bool:
        """Whether the consumer runs and the last pull from at least one of its queues succeeded;
        without queues, whether a name server answers. Sends no request; see `ping`."""
        session = self._sessions.present
        return session is not None and session.life.running and session.assignment.healthy

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """The lag of each assigned queue: offsets from the first unfinished message to the end of
        the queue, as of the last pull. Messages that the filter excludes count. May be read from
        any thread."""
        session = self._sessions.present
        return {} if session is None else session.assignment.lag

    @property
    def last_success(self) -> float | None:
        """When a broker last answered a pull, Unix seconds; None before the first answer. A pull
        that finds no messages takes up to `suspend` seconds, or twice that with `share_polls`."""
        session = self._sessions.present
        return None if session is None else session.assignment.answered_at

    async def ping(self, *, timeout: Seconds = 1.0) -> None:
        """Return when a broker of the topics has answered; while no broker is known, a name server.

        Raises:
            NotRunning: the consumer is not running here.
            Unavailable: none answered within `timeout` (seconds or a timedelta).
        """
        wait = seconds("timeout", timeout, above_zero=True)
        await self._sessions.running().instance.ping(wait)
