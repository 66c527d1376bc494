"""Authentication and authorization of one process: its users, their file, and the guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from pocketmq.auth.guard import Guard
from pocketmq.auth.settings import AuthSettings, codes_of, init_user, inner_user
from pocketmq.auth.signature import ACCESS_KEY, SIGNATURE, sign
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.serving.dispatch import Dispatcher

log = logging.getLogger("pocketmq.auth")


class Auth:
    """The users of one process; `path` is their file.

    `settings` have been checked by `pocketmq.auth.settings`.

    Attributes:
        tables: users and access lists.
    """

    def __init__(self, settings: AuthSettings, path: Path) -> None:
        self.tables = AuthTables(path)
        self._settings = settings

    async def start(self) -> None:
        """Read the file, and create the users of the settings. Raises AuthFileError, RemotingError.

        When it returns, they are on the disk.
        """
        await asyncio.to_thread(self.tables.load)
        settings = self._settings
        self.tables.start()
        self.tables.inner = inner_user(settings.inner_client_authentication_credentials)
        user = init_user(settings.init_authentication_user)
        if user is not None and self.tables.find(user.username) is None:
            log.info("the super user %s is created", user.username)
            self.tables.put_user(user)
        if not any(user.is_super for user in self.tables.users.values()):
            log.warning(
                "authenticationEnabled is set, but %s has no super user: nobody can manage users. "
                "Set initAuthenticationUser and restart",
                self.tables.path,
            )
        await self.tables.saved()

    async def stop(self) -> None:
        """Write pending changes."""
        await self.tables.stop()

    def protect(self, dispatcher: Dispatcher, cluster: str = "") -> None:
        """Let this dispatcher, of a server in `cluster`, execute only allowed requests."""
        settings = self._settings
        guard = Guard(
            self.tables,
            cluster=cluster,
            authorize=settings.authorization_enabled,
            unsigned=codes_of(settings.authentication_whitelist),
            unchecked=codes_of(settings.authorization_whitelist),
        )
        dispatcher.protect(guard.check, guard)


#: Like `pocketmq.remoting.connection.Signer`.
Sign = Callable[
    [Header | None, Mapping[str, str] | None, bytes | bytearray | memoryview], dict[str, str]
]


def inner_signer(settings: AuthSettings) -> Sign | None:
    """Return the signer of this server's own requests; None if it has no credentials."""
    user = inner_user(settings.inner_client_authentication_credentials)
    return None if user is None else signer_of(user)


def signer_of(user: User) -> Sign:
    """Return a signer for requests as this user."""

    def signed(
        header: Header | None,
        ext_fields: Mapping[str, str] | None,
        body: bytes | bytearray | memoryview,
    ) -> dict[str, str]:
        added = {**(ext_fields or {}), ACCESS_KEY: user.username}
        fields = added if header is None else header.to_ext() | added
        return {**added, SIGNATURE: sign(user.password, fields, body)}

    return signed
