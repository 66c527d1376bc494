"""The status of an answer: the code for each error."""

from __future__ import annotations

from typing import Final

from pocketmq.auth.errors import AuthError
from pocketmq.error_kind import unexpected
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError, RemotingTimeout


class ServiceError(Exception):
    """A call, or one of its entries, ends with this status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


#: The official proxy answers all but the first five with INTERNAL_SERVER_ERROR, for which clients
#: send a message three times, although a retry cannot succeed.
_OF_BROKER: Final = {
    int(ResponseCode.SYSTEM_BUSY): pb.TOO_MANY_REQUESTS,
    int(ResponseCode.FLOW_CONTROL): pb.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): pb.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): pb.CONSUMER_GROUP_NOT_FOUND,
    int(ResponseCode.TOPIC_NOT_EXIST): pb.TOPIC_NOT_FOUND,
    int(ResponseCode.POLLING_FULL): pb.TOO_MANY_REQUESTS,
    int(ResponseCode.NO_PERMISSION): pb.FORBIDDEN,
    int(ResponseCode.MESSAGE_ILLEGAL): pb.MESSAGE_CORRUPTED,
    int(ResponseCode.INVALID_PARAMETER): pb.BAD_REQUEST,
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): pb.ILLEGAL_FILTER_EXPRESSION,
    int(ResponseCode.QUERY_NOT_FOUND): pb.OFFSET_NOT_FOUND,
}


def code_of(error: BaseException) -> tuple[int, str]:
    """Return the code and the text for an error."""
    if isinstance(error, ServiceError):
        return error.code, error.text
    if isinstance(error, AuthError):
        # For both authentication and authorization, as in the official proxy.
        return pb.UNAUTHORIZED, error.remark or str(error)
    if isinstance(error, RemotingTimeout):
        return pb.PROXY_TIMEOUT, str(error)
    if isinstance(error, RemotingError):
        code = _OF_BROKER.get(error.code, pb.INTERNAL_SERVER_ERROR)
        return code, error.remark or str(error)
    return pb.INTERNAL_SERVER_ERROR, unexpected(error)


def status_of(error: BaseException) -> pb.Status:
    """Return the status for an error."""
    code, text = code_of(error)
    return pb.Status(code=code, message=text)  # type: ignore[arg-type]


def ok() -> pb.Status:
    """Return the status of a success."""
    return pb.Status(code=pb.OK, message="OK")


def overall(statuses: list[pb.Status], *, by_name: bool = False) -> pb.Status:
    """Return the status of a call from those of its entries: the common one, or MULTIPLE_RESULTS.

    `by_name`: the call's message is the name of its code, and only the entries have explanations.
    """
    codes = {status.code for status in statuses}
    code = pb.MULTIPLE_RESULTS if len(codes) > 1 else statuses[0].code
    if by_name:
        return pb.Status(code=code, message=pb.Code.Name(code))
    if len(codes) == 1:
        return statuses[0]
    return pb.Status(code=code, message="the entries have different results")
