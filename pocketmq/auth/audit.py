"""The audit log: one line for each admin request, with who, what, from where, and how it went.

The logger is `pocketmq.audit`, at INFO; commands that run a server always write it. It works
without authentication, too, and then names nobody. Only admin requests are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from pocketmq.auth.permissions import ADMIN, needs_of
from pocketmq.auth.policies import PolicyType
from pocketmq.auth.store import AclInfo, UserInfo
from pocketmq.limited_log import one_line
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.settings.properties_file import parse_properties

log = logging.getLogger("pocketmq.audit")

_SECRET: Final = frozenset({"value"})  # fields of headers
_MOST_CHARACTERS: Final = 1_000
_MOST_BYTES: Final = 64 * 1024  # of a body whose settings are decoded


def audit(dispatcher: Dispatcher) -> None:
    """Log each admin request that this dispatcher serves. Call it once all are registered."""
    for code in ADMIN:
        if code in dispatcher.codes:
            dispatcher.wrap(code, _logged)


def _logged(handler: Handler) -> Handler:
    def execute(request: Request[Any]) -> Answer:
        try:
            answer = handler(request)
        except Exception as error:
            _write(request, _reason(error))
            raise
        if isinstance(answer, Response):
            _write(request, _outcome(answer))
        elif isinstance(answer, Awaitable):
            return _finish(request, answer)
        else:
            _write(request, "taken")
        return answer

    return execute


async def _finish(request: Request[Any], answer: Awaitable[Response | None]) -> Response | None:
    try:
        response = await answer
    except Exception as error:
        _write(request, _reason(error))
        raise
    _write(request, "taken" if response is None else _outcome(response))
    return response


def _outcome(response: Response) -> str:
    return "done" if response.code == 0 else f"failed with {int(response.code)}: {response.remark}"


def _reason(error: Exception) -> str:
    return f"failed: {error.remark if isinstance(error, RemotingError) else type(error).__name__}"


def _write(request: Request[Any], outcome: str) -> None:
    user = request.caller.username if request.caller is not None else ""
    log.info(
        "%s by %s from %s:%d: %s",
        _what(request),
        f"User:{user}" if user else "an anonymous client",
        *request.connection.peer,
        one_line(outcome[:_MOST_CHARACTERS]),
    )


def _what(request: Request[Any]) -> str:
    words = [RequestCode(request.code).name]
    fields = msgspec.to_builtins(request.header)
    words += [
        f"{name}={value!r}"
        for name, value in fields.items()
        if value not in (None, "") and name not in _SECRET
    ]
    length = sum(map(len, words))
    try:
        for word in _IN_BODY.get(request.code, _named)(request):
            if length > _MOST_CHARACTERS:
                break  # there may be 15,000 groups
            words.append(word)
            length += len(word)
    except (RemotingError, msgspec.DecodeError, UnicodeDecodeError):
        words.append("(a body that cannot be read)")
    text = " ".join(words)
    return one_line(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...")


# Describes changes in a body by the names of its parts, since values may be passwords.


def _named(request: Request[Any]) -> Iterator[str]:
    """Name the topics and groups of a request whose header names none."""
    if not msgspec.structs.fields(request.header):
        for need in needs_of(request, "") or ():
            if need.name:
                yield str(need)


def _settings(request: Request[Any]) -> Iterator[str]:
    """Name the settings."""
    yield from parse_properties(str(request.body[:_MOST_BYTES], "utf-8", "replace"))


def _user(request: Request[Any]) -> Iterator[str]:
    """Describe the new state of the user."""
    user = msgspec.json.decode(request.body, type=UserInfo)
    if user.user_type:
        yield f"userType={user.user_type!r}"
    if user.user_status:
        yield f"userStatus={user.user_status!r}"
    if user.password:
        yield "with a password"


def _acl(request: Request[Any]) -> Iterator[str]:
    """Show each entry: its resource, actions, decision and addresses."""
    for policy in msgspec.json.decode(request.body, type=AclInfo).policies:
        for entry in policy.entries:
            words = [entry.resource, ",".join(entry.actions), entry.decision]
            if entry.source_ips:
                words.append(f"from {','.join(entry.source_ips)}")
            if policy.policy_type not in (None, "", PolicyType.CUSTOM):
                words.append(f"by {policy.policy_type}")
            yield f"({' '.join(words)})"


_IN_BODY: Final[Mapping[int, Callable[[Request[Any]], Iterator[str]]]] = {
    RequestCode.UPDATE_BROKER_CONFIG: _settings,
    RequestCode.UPDATE_NAMESRV_CONFIG: _settings,
    RequestCode.AUTH_CREATE_USER: _user,
    RequestCode.AUTH_UPDATE_USER: _user,
    RequestCode.AUTH_CREATE_ACL: _acl,
    RequestCode.AUTH_UPDATE_ACL: _acl,
}
