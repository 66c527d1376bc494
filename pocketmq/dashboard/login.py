"""Login: as a user of the cluster if that requires signatures, else with a password."""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import InvalidName, NoPermission
from pocketmq.dashboard.access import Access

#: In the error of both pocketmq and official servers for a user with a valid signature.
_SIGNATURE_ACCEPTED = "has no permission"


class Way(enum.Enum):
    """The fields of the login form."""

    PASSWORD = "password"
    USER = "user"
    NONE = "none"


class WrongLogin(Exception):
    """The user or the password is wrong."""


class Login:
    """Checks the logins of users who may change things.

    - `password`: takes the place of the cluster's users.
    - `open`: creates an Access, not yet started, with or without credentials.
    """

    def __init__(
        self, *, password: str | None, open: Callable[[Credentials | None], Access]
    ) -> None:
        self._password = password
        self._open = open

    async def way(self) -> Way:
        """Return the current way to log in. Raises RemotingError if the cluster has to be asked but
        cannot be reached."""
        if self._password is not None:
            return Way.PASSWORD
        async with self._open(None) as stranger:
            try:
                await stranger.admin.ping()
            except NoPermission:
                return Way.USER
        return Way.NONE

    async def log_in(self, user: str, secret: str) -> tuple[str, Access | None]:
        """Check the form; return the name to show, and the access of the user.

        The access is None if changes are made as the dashboard itself.

        Raises:
            WrongLogin: user or password are wrong, or login is disabled.
            RemotingError: the cluster cannot be asked.
        """
        if self._password is not None:
            if not hmac.compare_digest(secret.encode(), self._password.encode()):
                raise WrongLogin
            return "operator", None
        # If signatures are not checked, any password would pass.
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
