"""The answer to a request that waited: nothing above its handler catches what that raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import Request, Response


def answer_late(
    request: Request[Any], handler: Callable[[Any], Response | None], log: LimitedLog
) -> int:
    """Call `handler(request)`, make a response of what it raises, and reply, unless the handler
    does so later. Return the bytes of the answer's body."""
    try:
        response = handler(request)
    except RemotingError as error:
        response = Response(error.code, error.remark)
    except Exception as error:
        log.exception("connection %s: a request that waited failed", request.connection)
        response = Response(ResponseCode.SYSTEM_ERROR, unexpected(error))
    if response is None:
        return 0
    size = response.length
    request.reply(response)
    return size
