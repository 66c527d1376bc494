"""Who is logged in: a bounded number of sessions, each with what it may ask the cluster with."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

from pocketmq.dashboard.access import Access

MOST_SESSIONS: Final = 64
#: Seconds without a request after which a session ends, and seconds that it lasts at most.
IDLE: Final = 30 * 60.0
LIFETIME: Final = 12 * 3600.0


class Session:
    """One login.

    `access` is that of the user who logged in, and ends with the session; None where changes are
    made as the dashboard itself.
    """

    def __init__(self, user: str, access: Access | None, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.user = user
        self.access = access
        self.began = now
        self.seen = now


class Sessions:
    """The sessions by id; the one that was not used for longest gives way to a new one.

    `clock` gives seconds.
    """

    def __init__(
        self, *, most: int = MOST_SESSIONS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, id: str) -> Session | None:
        """The session with this id, which is in use now; None for one that has ended."""
        session = self._sessions.get(id)
        now = self._clock()
        if session is None or self._is_over(session, now):
            return None
        session.seen = now
        return session

    async def begin(self, user: str, access: Access | None) -> Session:
        """Begin a session; those that are over end first."""
        now = self._clock()
        for old in [each for each in self._sessions.values() if self._is_over(each, now)]:
            await self.end(old)
        while len(self._sessions) >= self._most:
            await self.end(min(self._sessions.values(), key=lambda each: each.seen))
        session = Session(user, access, now)
        self._sessions[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """End a session; again without effect."""
        self._sessions.pop(session.id, None)
        if session.access is not None:
            await session.access.shutdown()

    async def end_all(self) -> None:
        """End every session."""
        for session in [*self._sessions.values()]:
            await self.end(session)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.seen > IDLE or now - session.began > LIFETIME


class FormTokens:
    """Tokens in forms, which only a page of this process can know: against forged requests.

    A token belongs to a cookie that the browser sends with the form.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, cookie: str) -> str:
        """The token for the forms of pages that are sent to the holder of a cookie."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def fits(self, token: str, cookie: str) -> bool:
        """Whether a form has the token of the cookie that came with it."""
        return bool(cookie) and hmac.compare_digest(token.encode(), self.of(cookie).encode())


class LoginLimit:
    """Slows down guessing: after `most` failures within `window` seconds, an address has to wait.

    It remembers a bounded number of addresses. `clock` gives seconds.
    """

    def __init__(
        self,
        *,
        most: int = 5,
        window: float = 60.0,
        addresses: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._window = window
        self._addresses = addresses
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def wait(self, address: str) -> float:
        """Seconds until the address may try again; 0 if it may now."""
        recent = self._recent(address)
        if len(recent) < self._most:
            return 0.0
        return recent[-self._most] + self._window - self._clock()

    def failed(self, address: str) -> None:
        """Count an attempt; one that turns out well is taken back by `succeeded`."""
        recent = self._recent(address)
        self._failures.pop(address, None)
        while len(self._failures) >= self._addresses:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = [*recent[1 - self._most :], self._clock()]

    def succeeded(self, address: str) -> None:
        """Forget the failures of an address."""
        self._failures.pop(address, None)

    def _recent(self, address: str) -> list[float]:
        now = self._clock()
        return [time for time in self._failures.get(address, ()) if now - time < self._window]
