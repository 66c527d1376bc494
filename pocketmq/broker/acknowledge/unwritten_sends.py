"""Sends that are answered although their messages are still in the buffer of the commit log.

The buffer is written before any answer is sent. If the disk is full or fails, each of these answers
is replaced by SERVICE_NOT_AVAILABLE and the reason. The messages stay in the buffer, because
messages that the broker itself delivers are among them. So a message refused in this way may still
be stored later, as after a timeout.

The number of these sends is bounded by what the server executes before it writes the buffer: one
turn of the event loop, in which each connection has two milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pocketmq.broker.acknowledge.answers import SendAnswers
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.serving.request import Channel, Request
from pocketmq.store.message_store import MessageStore


class UnwrittenSends:
    """The sends of one broker that were answered since the store last wrote its buffer.

    Attributes:
        note: records the channel and the opaque of a request whose answer acknowledges a message
            put in this turn; call it before answering. It is the list's `append`, because a Python
            function here would cost 3 % of a send.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, store_host: bytes) -> None:
        self._store = store
        self._answers = SendAnswers(config, store_host)
        self._waiting: list[tuple[Channel, int]] = []
        self._runs: list[tuple[Channel, Collection[int]]] = []
        self.note = self._waiting.append

    def add(self, request: Request[Any]) -> None:
        """Record a request."""
        self.note((request.channel, request.opaque))

    def add_run(self, channel: Channel, opaques: Collection[int]) -> None:
        """Record several requests of one channel."""
        self._runs.append((channel, opaques))

    def settle(self) -> None:
        """Write the buffer; if that fails, refuse the sends whose messages are in it. Call this
        before answers are sent."""
        try:
            self._store.settle()
        except OSError:
            self._refuse()
        else:
            self._waiting.clear()
            self._runs.clear()

    def _refuse(self) -> None:
        """Replace the answers that exist already; keep the sends that are answered later."""
        by_channel: dict[Channel, set[int]] = {}
        for channel, opaque in self._waiting:
            by_channel.setdefault(channel, set()).add(opaque)
        for channel, opaques in self._runs:
            by_channel.setdefault(channel, set()).update(opaques)
        self._runs.clear()
        refusal = self._answers.not_available(self._store.told_refusal)
        self._waiting[:] = [
            (channel, opaque)
            for channel, noted in by_channel.items()
            for opaque in noted - channel.replace_answers(noted, refusal)
        ]
