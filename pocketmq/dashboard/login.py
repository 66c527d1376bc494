"""How one logs in: as a user of the cluster where it wants signatures, else with a password."""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import InvalidName, NoPermission
from pocketmq.dashboard.access import Access

#: What servers of both makes say to a user whose signature they accepted.
_SIGNATURE_ACCEPTED = "has no permission"


class Way(enum.Enum):
    """What the login form asks for."""

    PASSWORD = "password"
    USER = "user"
    NONE = "none"


class WrongLogin(Exception):
    """The user or the password is wrong."""


class Login:
    """Lets in whoever may change things.

    - `password`: takes the place of the cluster's users.
    - `open`: makes an Access with credentials, or without; not started yet.
    """

    def __init__(
        self, *, password: str | None, open: Callable[[Credentials | None], Access]
    ) -> None:
        self._password = password
        self._open = open

    async def way(self) -> Way:
        """How one logs in now. Raises RemotingError if the cluster has to be asked and cannot."""
        if self._password is not None:
            return Way.PASSWORD
        async with self._open(None) as stranger:
            try:
                await stranger.admin.ping()
            except NoPermission:
                return Way.USER
        return Way.NONE

    async def log_in(self, user: str, secret: str) -> tuple[str, Access | None]:
        """Check what the form has; returns the name to show, and the access of the user.

        The access is None if changes are made as the dashboard itself.

        Raises:
            WrongLogin: user or password are wrong, or one cannot log in at all.
            RemotingError: the cluster cannot be asked.
        """
        if self._password is not None:
            if not hmac.compare_digest(secret.encode(), self._password.encode()):
                raise WrongLogin
            return "operator", None
        # Where no signature is checked, any would do.
        if await self.way() is Way.NONE:
            raise WrongLogin
        try:
            access = self._open(Credentials(user, secret))
        except InvalidName:
            raise WrongLogin from None
        await access.start()
        try:
            await access.admin.ping()
        except NoPermission as error:
            if _SIGNATURE_ACCEPTED not in error.remark:
                await access.shutdown()
                raise WrongLogin from None
        except BaseException:
            await access.shutdown()
            raise
        return user, access
