"""Held pulls that had no answer when their batch was answered, kept for the client's next batch.

A batch of long polls is answered as soon as one child has messages; the client then sends the
others again, as the same bytes. Ending and starting hundreds of long polls for every message would
cost more than the message. So a pull without an answer stays held for a short time, and an equal
child of the next batch resumes it. A message that arrives in between ends the pull without an
answer, because no request waits for it; the next batch finds the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import Any, Final

from pocketmq.broker.waiting.hold_service import HoldService
from pocketmq.remoting.serving.request import Request, Response

#: Seconds that a pull stays held until it is resumed.
KEEP_SECONDS: Final = 1.0

_ATTRIBUTE: Final = "held pulls of a batch"


class HeldPulls:
    """The held pulls of one connection, and the channel of their answers while they are held.

    Attributes:
        by_head: the pulls by their encoded headers.
    """

    def __init__(self, holds: HoldService) -> None:
        self.by_head: dict[bytes, Request[Any]] = {}
        self._holds = holds

    @classmethod
    def of(cls, request: Request[Any], holds: HoldService) -> HeldPulls:
        """Return the held pulls of the request's connection and user; create them if needed."""
        attributes = request.connection.attributes
        key = _ATTRIBUTE
        if request.caller is not None:
            # A pull of one user must not be resumed by another user of the same connection.
            key += f" of {request.caller.username}"
        held: HeldPulls | None = attributes.get(key)
        if held is None:
            held = attributes[key] = cls(holds)
        return held

    def keep(self, pulls: Sequence[Request[Any]]) -> None:
        """Keep those of these pulls that are held for a short time; their channel is this object.

        Pulls that were skipped, because there was enough data, and pulls that were just woken are
        not held.
        """
        by_head, holds = self.by_head, self._holds
        kept = [pull for pull in pulls if pull in holds]
        for pull in kept:
            before = by_head.get(pull.head)
            if before is not None:
                holds.cancel(before)
            by_head[pull.head] = pull
        if kept:
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._expire, kept)

    def take(self, pulls: Sequence[Request[Any]]) -> None:
        """Resume these pulls for a batch, and restart their timeouts."""
        for pull in pulls:
            del self.by_head[pull.head]
            self._holds.renew(pull)

    def respond(self, request: Request[Any], response: Response) -> None:
        """Drop the answer to a held pull: no request waits for it."""
        if self.by_head.get(request.head) is request:
            del self.by_head[request.head]

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        """Return an empty set: there are no answers."""
        return opaques

    def _expire(self, pulls: Sequence[Request[Any]]) -> None:
        for pull in pulls:
            # It may have been resumed and kept again since; then ending it early is harmless.
            if pull.channel is self and self.by_head.get(pull.head) is pull:
                del self.by_head[pull.head]
                self._holds.cancel(pull)
