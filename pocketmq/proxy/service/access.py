"""Authentication and authorization of calls, by the users and access lists of the remoting port.

A call is signed by the header `authorization`: `MQv2-HMAC-SHA1 Credential=NAME,
SignedHeaders=x-mq-date-time, Signature=HEX`, where HEX is the HMAC-SHA1 of the text of the header
x-mq-date-time with the user's password. So an intercepted signature is valid for ever and for any
call: use TLS on untrusted networks. Reference: auth DefaultAuthenticationContextBuilder and
DefaultAuthorizationContextBuilder.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from typing import Final

from pocketmq.auth.errors import AuthError
from pocketmq.auth.guard import Guard, SignedCaller
from pocketmq.auth.permissions import Need, on_group, on_topic
from pocketmq.auth.policies import Action
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus
from pocketmq.limited_log import LimitedLog, shown
from pocketmq.proxy.rpc import Call
from pocketmq.remoting.serving.request import Caller

log = logging.getLogger("pocketmq.auth")

_RECEIVE: Final = "apache.rocketmq.v2.ReceiveMessageRequest"
_AUTHORIZATION: Final = b"authorization"
_DATE_TIME: Final = b"x-mq-date-time"


class Access:
    """Checks calls, and records the caller in them. Without `tables`, everything is allowed.

    `authorize`: check access lists; otherwise a valid signature is enough. `unsigned` and
    `unchecked`: names of requests (`apache.rocketmq.v2.QueryRouteRequest`) that need no signature,
    and no permission.
    """

    def __init__(
        self,
        tables: AuthTables | None = None,
        *,
        authorize: bool = False,
        unsigned: frozenset[str] = frozenset(),
        unchecked: frozenset[str] = frozenset(),
    ) -> None:
        self._tables = tables
        self._authorize = authorize
        self._unsigned = unsigned
        self._unchecked = unchecked
        self._guard = Guard(tables, authorize=authorize) if tables is not None else None
        self._log = LimitedLog(log)

    @property
    def enabled(self) -> bool:
        """Whether calls are checked at all."""
        return self._guard is not None

    def publish(self, call: Call, *topics: str) -> None:
        """Require Pub on each topic. Raises AuthError."""
        self._check(call, (on_topic(topic, Action.PUB) for topic in topics))

    def consume(self, call: Call, group: str, *topics: str) -> None:
        """Require Sub on the group and on each topic. Raises AuthError."""

        def needs() -> Iterator[Need]:
            yield on_group(group, Action.SUB)
            for topic in topics:
                yield on_topic(topic, Action.SUB)

        self._check(call, needs())

    def may_receive(self, caller: Caller | None, group: str, topic: str) -> bool:
        """Tell whether a client's ReceiveMessage would be allowed now, long after its call."""
        if caller is None or _RECEIVE in self._unchecked:
            return True
        return caller.may_consume(group, topic)

    def use(self, call: Call, topic: str) -> None:
        """Require Pub or Sub on the topic. Raises AuthError."""
        self._check(call, iter((on_topic(topic, Action.PUB, Action.SUB),)))

    def anyone(self, call: Call) -> None:
        """Require a signature. Raises AuthError."""
        self._check(call, iter(()))

    def _check(self, call: Call, needs: Iterator[Need]) -> None:
        guard = self._guard
        if guard is None:
            call.checked = True
            return
        name = f"apache.rocketmq.v2.{call.method}Request"
        try:
            checked = self._authorize and name not in self._unchecked
            if name in self._unsigned and not checked:
                call.caller = SignedCaller(None, call.peer[0], guard)
                call.checked = True
                return
            caller = call.caller
            if not isinstance(caller, SignedCaller):
                caller = SignedCaller(self._user_of(call), call.peer[0], guard)
            if checked:
                for need in needs:
                    guard.require(caller, need)
            call.caller = caller
            call.checked = True
        except AuthError as error:
            self._log.warning(
                "call %s of %s is refused: %s",
                call.method,
                call.peer[0],
                error.remark,
                cause=("refused", call.peer[0], call.method, error.kind),
            )
            raise

    def _user_of(self, call: Call) -> User:
        assert self._tables is not None
        name, signature = _credential(call.text(_AUTHORIZATION))
        if not name:
            raise AuthError("username cannot be null.", "nobody")
        user = self._tables.find(name)
        if user is None:
            raise AuthError(f"User:{shown(name)} is not found.", "unknown")
        if user.user_status is UserStatus.DISABLE:
            raise AuthError(f"User:{name} is disabled.", "disabled")
        signed = call.metadata.get(_DATE_TIME, b"")
        expected = hmac.new(user.password.encode(), signed, "sha1").hexdigest()
        if not signed or not hmac.compare_digest(expected.encode(), signature.lower().encode()):
            raise AuthError("check signature failed.", "signature")
        return user


def _credential(text: str) -> tuple[str, str]:
    """Return the user's name and the signature; empty if they are missing."""
    fields = {}
    for item in text.partition(" ")[2].split(","):
        name, _, value = item.strip().partition("=")
        fields[name] = value
    return fields.get("Credential", "").partition("/")[0], fields.get("Signature", "")
