"""Sends that are answered although their messages are still in the buffer of the commit log.

The buffer is written before any answer leaves, so an answer that leaves is true. When the disk is
full or fails, these answers would lie: each is replaced by SERVICE_NOT_AVAILABLE and the reason.
The messages stay in the buffer, since deliveries of the broker's own lie between them. So a message
that was refused in this way may be stored all the same, as after a timeout.

What is noted here is bounded by what the server executes before it flushes: one turn of the event
loop, in which each connection has two milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pocketmq.broker.acknowledge.answers import SendAnswers
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.serving.request import Channel, Request
from pocketmq.store.message_store import MessageStore


class UnwrittenSends:
    """The sends of one broker that were answered since the store wrote its buffer.

    Attributes:
        note: takes the channel and the opaque of a request whose answer acknowledges a message that
            was put in this turn; to be called before the answer is given. It is the list's own
            method, since a call of ours would cost 3 % of a send.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, store_host: bytes) -> None:
        self._store = store
        self._answers = SendAnswers(config, store_host)
        self._waiting: list[tuple[Channel, int]] = []
        self._runs: list[tuple[Channel, Collection[int]]] = []
        self.note = self._waiting.append

    def add(self, request: Request[Any]) -> None:
        """Note a request."""
        self.note((request.channel, request.opaque))

    def add_run(self, channel: Channel, opaques: Collection[int]) -> None:
        """Note several requests of one channel."""
        self._runs.append((channel, opaques))

    def settle(self) -> None:
        """Have what was put written, or refuse the sends whose answers would be untrue; to be
        called before answers leave."""
        try:
            self._store.settle()
        except OSError:
            self._refuse()
        else:
            self._waiting.clear()
            self._runs.clear()

    def _refuse(self) -> None:
        """Replace the answers that were given; those that come later stay noted."""
        by_channel: dict[Channel, set[int]] = {}
        for channel, opaque in self._waiting:
            by_channel.setdefault(channel, set()).add(opaque)
        for channel, opaques in self._runs:
            by_channel.setdefault(channel, set()).update(opaques)
        self._runs.clear()
        refusal = self._answers.not_available(self._store.refusal)
        self._waiting[:] = [
            (channel, opaque)
            for channel, noted in by_channel.items()
            for opaque in noted - channel.replace_answers(noted, refusal)
        ]
