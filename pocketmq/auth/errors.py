"""What is answered to a request that is not allowed, or asks for what cannot be."""

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError


class AuthError(RemotingError):
    """NO_PERMISSION, which the official servers answer to all of it.

    Attributes:
        kind: what refusals of one kind share, for the limit of log lines.
    """

    def __init__(self, remark: str, kind: str = "") -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind
