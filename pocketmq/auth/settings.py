"""The settings of authentication and authorization, by their official names, and what they mean.

Both servers have the same ones. Two of them hold passwords; `SECRET` names them, so that no answer,
log line or error shows them. Reference: AuthConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from pocketmq.auth.errors import AuthError
from pocketmq.auth.users import User, UserType
from pocketmq.remoting.settings.properties_file import Check, ConfigError, ConfigErrors

SECRET: Final = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
HIDDEN: Final = "******"
#: Including those of other parts that may hold a password.
ANY_SECRET: Final = SECRET | {"metricsGrpcExporterHeader"}


class AuthSettings(Protocol):
    """The part of a server's configuration that is about authentication and authorization.

    - `authentication_enabled`: each request has to be signed by a user;
    - `authorization_enabled`: what normal users may do is in their access lists;
    - `init_authentication_user`: `{"username":"...","password":"..."}`, a super user that is
      created at the first start;
    - `inner_client_authentication_credentials`: `{"accessKey":"...","secretKey":"..."}`, what this
      server signs its own requests with, and a super user as long as it is set; never stored;
    - `authentication_whitelist`, `authorization_whitelist`: request codes, and names of gRPC
      messages, joined by commas.
    """

    authentication_enabled: bool
    authorization_enabled: bool
    init_authentication_user: str
    inner_client_authentication_credentials: str
    authentication_whitelist: str
    authorization_whitelist: str


class _InitUser(msgspec.Struct):
    username: str
    password: str


class _Credentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


def hidden(properties: Mapping[str, str]) -> dict[str, str]:
    """Return settings as answers may show them."""
    return {key: HIDDEN if key in ANY_SECRET and text else text for key, text in properties.items()}


def init_user(text: str) -> User | None:
    """Read initAuthenticationUser. Raises ValueError, without the value."""
    return _super_user(text, _InitUser, '{"username":"...","password":"..."}, none')


def inner_user(text: str) -> User | None:
    """Read innerClientAuthenticationCredentials. Raises ValueError, without the value."""
    return _super_user(text, _Credentials, '{"accessKey":"...","secretKey":"..."}, neither')


def _super_user(text: str, kind: type[msgspec.Struct], form: str) -> User | None:
    if not text.strip():
        return None
    try:
        name, password = msgspec.structs.astuple(msgspec.json.decode(text, type=kind))
        return User(name, password, UserType.SUPER)
    except (msgspec.DecodeError, AuthError):
        raise ValueError(f"must be {form} of them empty") from None


def codes_of(text: str) -> frozenset[int]:
    """Return the request codes of a white list. Raises ValueError.

    It may also have names of gRPC messages (`apache.rocketmq.v2.`), which are for the gRPC proxy
    and skipped here.
    """
    codes = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith("apache.rocketmq."):
            continue
        if not word.isascii() or not word.isdigit():
            raise ValueError(f"{word[:80]!r} is not a request code; write them as 10,310")
        codes.add(int(word))
    return frozenset(codes)


def _fault_of(key: str, text: str) -> str | None:
    try:
        if key == "initAuthenticationUser":
            init_user(text)
        elif key == "innerClientAuthenticationCredentials":
            inner_user(text)
        else:
            codes_of(text)
    except ValueError as error:
        return f"{key}: {error}"
    return None


def _check_of(key: str) -> Check:
    return lambda text: _fault_of(key, text)


#: Checks of single properties: each returns a text for what is wrong with a value.
CHECKS: Final[Mapping[str, Check]] = {
    key: _check_of(key) for key in (*SECRET, "authenticationWhitelist", "authorizationWhitelist")
}

#: Fields of both configurations.
PROPERTIES: Final = frozenset(
    {"authenticationEnabled", "authorizationEnabled", "authFilePath", *CHECKS}
)


def check_together(settings: AuthSettings, warnings: list[str]) -> None:
    """Check combinations of settings. Raises ConfigErrors."""
    if settings.authorization_enabled and not settings.authentication_enabled:
        text = (
            "authorizationEnabled needs authenticationEnabled=true: without signatures, anybody "
            "could give the name of any user"
        )
        raise ConfigErrors(
            [ConfigError("authorizationEnabled", "true", "false", text=text)], warnings
        )
    inner = inner_user(settings.inner_client_authentication_credentials)
    init = init_user(settings.init_authentication_user)
    if inner and init and inner.username == init.username and inner.password != init.password:
        text = (
            "initAuthenticationUser and innerClientAuthenticationCredentials name the same user "
            "with different passwords"
        )
        raise ConfigErrors([ConfigError("initAuthenticationUser", "", "", text=text)], warnings)
