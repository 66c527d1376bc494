"""Users: a name, a password that signs requests, a type and a status.

Passwords are kept in plain text: HMAC needs them. They never show in a `repr`.
Reference: auth User, UserConverter.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.auth.errors import AuthError

E = TypeVar("E", bound=StrEnum)

MAX_NAME: Final = 255
MAX_PASSWORD: Final = 1024
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]+")


class UserType(StrEnum):
    """A super user may do everything; a normal one what its access list allows."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Nobody can sign requests as a disabled user."""

    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True):
    """One user. Raises AuthError for an invalid name or password."""

    username: str
    password: str
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    def __post_init__(self) -> None:
        if not self.username or not self.username.strip():
            raise AuthError("username can not be blank")
        if len(self.username) > MAX_NAME or not _NAME.fullmatch(self.username):
            raise AuthError(
                f"the user name {self.username[:80]!r} must have 1 to {MAX_NAME} characters, and "
                "no blanks"
            )
        if not self.password.strip():
            raise AuthError("password can not be blank")
        if len(self.password) > MAX_PASSWORD:
            raise AuthError(f"the password has more than {MAX_PASSWORD} characters")

    @property
    def is_super(self) -> bool:
        """Whether every request is allowed."""
        return self.user_type is UserType.SUPER

    def __repr__(self) -> str:
        return f"User({self.username!r}, {self.user_type.value}, {self.user_status.value})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("username", self.username), ("user_type", self.user_type)]


def name_of(subject: str) -> str:
    """Return the user name of `User:name`. Raises AuthError for any other subject."""
    kind, colon, name = subject.partition(":")
    if not colon or kind.lower() != "user" or not name:
        raise AuthError(f"the subject {subject[:80]!r} is not User:NAME")
    return name


def by_name(kind: type[E], text: str) -> E:
    """Return the member with this name, in any case. Raises AuthError."""
    for member in kind:
        if member.value.lower() == text.strip().lower():
            return member
    allowed = ", ".join(member.value for member in kind)
    raise AuthError(f"{text[:80]!r} is not one of {allowed}")
