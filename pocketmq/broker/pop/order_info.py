"""Messages popped in order: when a queue is blocked, and its consumer offset. No I/O.

After a pop in order, the queue is blocked for other pops of the group until all messages of that
pop are acknowledged or visible again. A pop with the same attempt id gets the same messages again:
its client did not receive the answer. There are no checkpoints and there is no retry topic: the
consumer offset stays at the first message that is not acknowledged, and the deliveries of each
message are counted. Reference: ConsumerOrderInfoManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import field

from pocketmq.remoting.bodies.base import Body

MOST_MESSAGES: Final = 64
"""The most messages of a pop: the bit map is a Java long."""


class OrderInfo(Body):
    """The last pop in order of one queue by one group. Times are Unix ms.

    Attributes:
        attempt_id: the attempt id of the request.
        committed: bit n is set when message n is acknowledged.
        invisible_time: ms.
        last_consumed: when it was popped, by the broker's clock.
        places: the queue offset of the first message, then the distance of each other message from
            it.
        delivered: earlier deliveries by queue offset; messages without any are missing.
        visible: when single messages become visible again, by queue offset.
        pop_time: the pop time that acknowledgements must contain.
    """

    attempt_id: str | None = field(name="a", default=None)
    committed: int = field(name="cm", default=0)
    invisible_time: int | None = field(name="i", default=None)
    last_consumed: int = field(name="l", default=0)
    places: list[int] = field(name="o", default_factory=list)
    delivered: dict[int, int] | None = field(name="oc", default=None)
    visible: dict[int, int] | None = field(name="ot", default=None)
    pop_time: int = 0

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        if not self.places:
            return []
        first = self.places[0]
        return [first, *(first + place for place in self.places[1:])]

    def is_acked(self, index: int) -> bool:
        """Tell whether message `index` is acknowledged."""
        return bool(self.committed >> index & 1)

    def blocked_until(self, now: int, invisible_time: int = 0) -> int | None:
        """Return until when the queue is blocked, as known now; None if it is not.

        `invisible_time` applies to an entry without one.
        """
        usual = self.pop_time + (self.invisible_time or invisible_time)
        for index, offset in enumerate(self.offsets):
            if not self.is_acked(index):
                visible = (self.visible or {}).get(offset, usual)
                if now < visible:
                    return visible
        return None

    def ack(self, offset: int) -> bool:
        """Mark a message as acknowledged; return False if it is not in this pop."""
        try:
            index = self.offsets.index(offset)
        except ValueError:
            return False
        self.committed |= 1 << index
        return True

    @property
    def next_offset(self) -> int:
        """The new consumer offset: the first message that is not acknowledged, or after the last
        message if all are."""
        offsets = self.offsets
        for index, offset in enumerate(offsets):
            if not self.is_acked(index):
                return offset
        return offsets[-1] + 1

    def postpone(self, offset: int, visible: int) -> None:
        """Change the time at which a message becomes visible again."""
        if self.visible is None:
            self.visible = {}
        self.visible[offset] = visible


def popped(
    before: OrderInfo | None,
    offsets: Sequence[int],
    *,
    attempt_id: str | None,
    pop_time: int,
    invisible_time: int,
    now: int,
) -> OrderInfo:
    """Return the entry for a pop of messages at these queue offsets, which replaces `before`."""
    first = offsets[0]
    info = OrderInfo(
        attempt_id=attempt_id,
        invisible_time=invisible_time,
        last_consumed=now,
        places=[first, *(offset - first for offset in offsets[1:])],
        pop_time=pop_time,
    )
    if before is not None:
        counts = before.delivered or {}
        if before.attempt_id is not None and before.attempt_id == attempt_id:
            # The same delivery again: do not count it.
            info.delivered = counts
        else:
            known = set(before.offsets)
            info.delivered = {
                offset: counts.get(offset, 0) + 1 for offset in offsets if offset in known
            }
    return info
