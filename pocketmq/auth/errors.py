"""The error answer to a request that is not allowed, or asks for something impossible."""

from __future__ import annotations

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError


class AuthError(RemotingError):
    """NO_PERMISSION, which the official servers answer in all these cases.

    Attributes:
        kind: common to refusals of one kind, for the limit of log lines.
    """

    def __init__(self, remark: str, kind: str = "") -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind
