"""Messages popped in order: what a queue waits for before it gives the next ones. No I/O.

After a pop in order a queue gives nothing to other pops of the group until all messages of that pop
are acknowledged or visible again. A pop with the same attempt id gets the same messages again: its
client did not receive the answer. There are no checkpoints and no retry topic: the consumer offset
stays at the first message that is not acknowledged, and messages are counted each time they are
delivered again. Reference: ConsumerOrderInfoManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import field

from pocketmq.remoting.bodies.base import Body

MOST_MESSAGES: Final = 64
"""Their bits are a long of Java."""


class OrderInfo(Body):
    """The last pop in order of one queue by one group. Times are Unix ms.

    Attributes:
        attempt_id: of the pop's request.
        committed: bit n is set when message n is acknowledged.
        invisible_time: ms.
        last_consumed: when it was popped, by the broker's clock.
        places: the queue offset of the first message, and from it to each of the others.
        delivered: how often messages were delivered before, by queue offset; none that were not.
        visible: when single messages are visible again, by queue offset.
        pop_time: what acknowledgements must name.
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
        """Return until when the queue gives nothing, as far as is known now; None if it does.

        `invisible_time` is for an entry that has none.
        """
        usual = self.pop_time + (self.invisible_time or invisible_time)
        for index, offset in enumerate(self.offsets):
            if not self.is_acked(index):
                visible = (self.visible or {}).get(offset, usual)
                if now < visible:
                    return visible
        return None

    def ack(self, offset: int) -> bool:
        """Mark a message as acknowledged; False if it is not one of these."""
        try:
            index = self.offsets.index(offset)
        except ValueError:
            return False
        self.committed |= 1 << index
        return True

    @property
    def next_offset(self) -> int:
        """The consumer offset: of the first message that is not acknowledged; behind the last one
        when all are."""
        offsets = self.offsets
        for index, offset in enumerate(offsets):
            if not self.is_acked(index):
                return offset
        return offsets[-1] + 1

    def postpone(self, offset: int, visible: int) -> None:
        """Let a message be visible again at another time."""
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
    """Return the entry of a pop of messages at these queue offsets, after the entry `before`."""
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
            # The same delivery once more.
            info.delivered = counts
        else:
            known = set(before.offsets)
            info.delivered = {
                offset: counts.get(offset, 0) + 1 for offset in offsets if offset in known
            }
    return info
