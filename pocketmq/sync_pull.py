"""The parts of the pull consumer for scripts that are not generated."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.parameters import Seconds
from pocketmq.message.message import MessageExt
from pocketmq.sync_client import SyncClient


class PullClient(SyncClient):
    """A wrapped PullConsumer. If an interrupt (Ctrl-C) ends a call, the next call returns its
    messages."""

    _client: PullConsumer

    def poll(self, max_messages: int = 32, timeout: Seconds = 1.0) -> list[MessageExt]:
        """Do as PullConsumer.poll."""
        return self._take(lambda: self._client.poll(max_messages, timeout))

    def __iter__(self) -> Iterator[MessageExt]:
        async def following() -> list[MessageExt]:
            message = await anext(self._client, None)
            return [] if message is None else [message]

        while messages := self._take(following):
            yield messages[0]

    def _take(self, take: Callable[[], Coroutine[Any, Any, list[MessageExt]]]) -> list[MessageExt]:
        taken: list[MessageExt] = []

        async def work() -> None:
            taken.extend(await take())

        try:
            self._run(work())
            return taken
        except Exception:
            raise
        except BaseException:
            # The call may have ended before it could be cancelled.
            self._call(self._client._give_back, taken)
            raise
