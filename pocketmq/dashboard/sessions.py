"""The logged-in users: a bounded number of sessions, each with its access to the cluster."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from pocketmq.dashboard.access import Access

MOST_SESSIONS: Final = 64
#: Seconds without a request after which a session ends, and its longest duration.
IDLE: Final = 30 * 60.0
LIFETIME: Final = 12 * 3600.0


class Session:
    """One login.

    `access` belongs to the user who logged in, and ends with the session; None if changes are made
    as the dashboard itself.
    """

    def __init__(self, user: str, access: Access | None, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.user = user
        self.access = access
        self.began = now
        self.seen = now


class Sessions:
    """The sessions by id. If there are too many, a new session replaces the least recently used one
    of the user who has the most, so that nobody can log out the others by logging in.

    `clock` returns seconds.
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
        """Return the session with this id, and mark it as used; None if it has ended."""
        session = self._sessions.get(id)
        now = self._clock()
        if session is None or self._is_over(session, now):
            return None
        session.seen = now
        return session

    async def begin(self, user: str, access: Access | None) -> Session:
        """Start a session; expired ones end first."""
        now = self._clock()
        for old in [each for each in self._sessions.values() if self._is_over(each, now)]:
            await self.end(old)
        while len(self._sessions) >= self._most:
            counts = Counter(each.user for each in self._sessions.values())
            await self.end(
                min(self._sessions.values(), key=lambda each: (-counts[each.user], each.seen))
            )
        session = Session(user, access, now)
        self._sessions[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """End a session. Calling it again has no effect."""
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
    """Tokens in forms against forged requests; only a page of this process can know them.

    A token belongs to a cookie that the browser sends with the form.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, cookie: str) -> str:
        """Return the token for forms sent to the holder of a cookie."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def fits(self, token: str, cookie: str) -> bool:
        """Return whether a form has the token of the cookie sent with it."""
        return bool(cookie) and hmac.compare_digest(token.encode(), self.of(cookie).encode())


class LoginLimit:
    """Slows down guessing: after `most` failures within `window` seconds, an address has to wait.

    It keeps a bounded number of addresses. `clock` returns seconds.
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
        """Return the seconds until the address may try again; 0 if it may try now."""
        recent = self._recent(address)
        if len(recent) < self._most:
            return 0.0
        return recent[-self._most] + self._window - self._clock()

    def failed(self, address: str) -> None:
        """Count an attempt; `succeeded` undoes this for a successful one."""
        recent = self._recent(address)
        self._failures.pop(address, None)
        while len(self._failures) >= self._addresses:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = [*recent[1 - self._most :], self._clock()]

    def succeeded(self, address: str) -> None:
        """Take back the last attempt. Earlier failures stay: who can log in could otherwise guess
        the passwords of others without end."""
        recent = self._recent(address)[:-1]
        if recent:
            self._failures[address] = recent
        else:
            self._failures.pop(address, None)

    def _recent(self, address: str) -> list[float]:
        now = self._clock()
        return [time for time in self._failures.get(address, ()) if now - time < self._window]
