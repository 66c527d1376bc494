"""The audit log: one line for each admin request, with who, what, from where, and how it went.

It is the logger `pocketmq.audit`, at INFO. It works without authentication too, and then names
nobody. Only admin requests pass it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from pocketmq.auth.guard import one_line
from pocketmq.auth.permissions import ADMIN, needs_of
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.request import Request, Response

log = logging.getLogger("pocketmq.audit")

_SECRET: Final = frozenset({"value"})  # fields of headers; bodies are never shown
_MOST_CHARACTERS: Final = 500


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
        f"User:{user}" if user else "nobody in particular",
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
    if not fields:
        # What is changed is named in the body.
        try:
            words += [str(need) for need in needs_of(request, "") or () if need.name]
        except RemotingError:
            words.append("(a body that cannot be read)")
    return one_line(" ".join(words)[:_MOST_CHARACTERS])
