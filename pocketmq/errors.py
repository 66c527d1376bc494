"""Everything that clients raise: one tree under `RemotingError`, and `PayloadError`.

`pocketmq.client.errors` lists when each is raised. `PayloadError`, a `ValueError`, is raised if the
body of a message cannot be decoded as the expected type.
"""

from __future__ import annotations

from pocketmq.client import errors
from pocketmq.client.errors import *  # noqa: F403 - its `__all__` is the list
from pocketmq.message.payload import PayloadError

__all__ = ["PayloadError"]
__all__ += errors.__all__
