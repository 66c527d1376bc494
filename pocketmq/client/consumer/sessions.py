"""The lives of one consumer, one after the other: from each start to the next shutdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from pocketmq.client.errors import NotRunning
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.routes.name_server_list import check_namesrv


class Session(Protocol):
    """One life of a consumer."""

    instance: ClientInstance
    life: Lifecycle
    #: Whether it ever ran.
    begun: bool


S = TypeVar("S", bound=Session)


class Sessions(Generic[S]):
    """The present session of a consumer, and how it gets the next one.

    `owner` names the consumer in errors; `make` makes a session for the given name servers.
    """

    def __init__(
        self,
        owner: str,
        namesrv: str | Sequence[str] | None,
        make: Callable[[str | Sequence[str] | None], S],
    ) -> None:
        #: The session that runs, or ran last; None before the first one is needed.
        self.present: S | None = None
        self._owner = owner
        self._namesrv = check_namesrv(namesrv)
        self._make = make

    @property
    def namesrv(self) -> str | Sequence[str] | None:
        """Where the next session finds the name servers."""
        return self._namesrv

    @namesrv.setter
    def namesrv(self, namesrv: str | Sequence[str] | None) -> None:
        self._namesrv = check_namesrv(namesrv)
        if self.present is not None and not self.present.begun and not self.present.life.running:
            self.present = None

    @property
    def current(self) -> S:
        """The present session, or the one that `next` will return."""
        if self.present is None:
            self.present = self._make(self._namesrv)
        return self.present

    async def next(self) -> S:
        """Return the session to start; one that runs here already is returned again.

        Raises:
            NotRunning: the consumer runs in another event loop.
        """
        session = self.present
        if session is not None and (session.life.running or session.life.closing):
            binding = session.instance.binding
            if binding.left_behind:
                self.present = None
            elif (why := binding.why_elsewhere) is not None:
                raise NotRunning(self._owner, why)
            elif session.life.closing:
                await session.life.shutdown()
                if self.present is session:
                    self.present = None
        return self.current

    def running(self) -> S:
        """Return the session that runs; raises NotRunning if none does here."""
        session = self.present
        if session is None or not session.instance.running:
            raise NotRunning(self._owner, "start it first")
        session.instance.check_running()
        return session

    def to_shut_down(self) -> S | None:
        """Return the present session; raises NotRunning if it runs elsewhere."""
        session = self.present
        if session is not None and session.instance.running:
            session.instance.check_running()
        return session
