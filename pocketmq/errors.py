"""Everything that clients raise: one tree under `RemotingError`.

`pocketmq.client.errors` says when each is raised.
"""

from pocketmq.client.errors import *  # noqa: F403 - its `__all__` is the list
