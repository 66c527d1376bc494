"""The sessions of one consumer, one after another: each from a start to the next shutdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from pocketmq.client.errors import NotRunning
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.routes.name_server_list import check_namesrv


class Session(Protocol):
    """One run of a consumer."""

    instance: ClientInstance
    life: Lifecycle
    #: Whether it was started.
    begun: bool


S = TypeVar("S", bound=Session)


class Sessions(Generic[S]):
    """Holds the current session of a consumer, and creates the next one.

    `owner` names the consumer in errors; `make` creates a session for the given name servers.
    """

    def __init__(
        self,
        owner: str,
        namesrv: str | Sequence[str] | None,
        make: Callable[[str | Sequence[str] | None], S],
    ) -> None:
        #: The running or the last session; None before the first one is needed.
        self.present: S | None = None
        self._owner = owner
        self._namesrv = check_namesrv(namesrv)
        self._make = make

    @property
    def namesrv(self) -> str | Sequence[str] | None:
        """The name servers of the next session."""
        return self._namesrv

    @namesrv.setter
    def namesrv(self, namesrv: str | Sequence[str] | None) -> None:
        self._namesrv = check_namesrv(namesrv)
        if self.present is not None and not self.present.begun and not self.present.life.running:
            self.present = None

    @property
    def current(self) -> S:
        """The current session, or the one that `next` will return."""
        if self.present is None:
            self.present = self._make(self._namesrv)
        return self.present

    async def next(self) -> S:
        """Return the session to start, or the one that is already running here.

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
        """Return the running session; raises NotRunning if none runs here."""
        session = self.present
        if session is None or not session.instance.running:
            raise NotRunning(self._owner, "start it first")
        session.instance.check_running()
        return session

    def to_shut_down(self) -> S | None:
        """Return the current session; raises NotRunning if it runs in another event loop or
        process."""
        session = self.present
        if session is not None and session.instance.running:
            session.instance.check_running()
        return session
