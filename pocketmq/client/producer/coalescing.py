"""Sends that begin at the same moment share a batch, and none of them waits for company.

A send that is the only one under way is an ordinary one. Others are gathered for the rest of the
turn of the event loop: whoever is answered together goes on together, so tasks that each send one
message after the other soon share their requests, and the more are under way the larger these are.
"""

from __future__ import annotations

from pocketmq.client.errors import SendError
from pocketmq.client.in_flight import InFlight
from pocketmq.client.producer.accumulator import Accumulator
from pocketmq.client.producer.prepared_message import prepare
from pocketmq.client.producer.result import SendResult
from pocketmq.client.producer.sender import Sender
from pocketmq.client.validation import goes_alone
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode

__all__ = ["SMALL_BODY", "Coalescing"]

#: Bytes of a body from which on a request of its own costs little in comparison.
SMALL_BODY = 4096

#: What brokers say of a batch larger than their maxMessageSize: ours, and the official one.
_TOO_LARGE = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)


class Coalescing:
    """Gathers the sends of one producer, which are counted by `in_flight`, in its accumulator.

    `below`: only bodies of fewer bytes; larger ones may be worth compressing, which no batch is.
    """

    def __init__(
        self, accumulator: Accumulator, sender: Sender, in_flight: InFlight, below: int
    ) -> None:
        self._accumulator = accumulator
        self._sender = sender
        self._in_flight = in_flight
        self._below = min(below, SMALL_BODY)

    def takes(self, message: Message) -> bool:
        """Whether a checked message, whose send is under way, may share a request."""
        return (
            self._in_flight.count > 1
            and len(message.body) < self._below
            and not self._accumulator.full
            and not goes_alone(message)
        )

    async def send(self, message: Message, deadline: float) -> SendResult:
        """Send a message that it takes. Together with others it may be too large for a broker that
        takes each of them: then it goes again, by itself, and later batches are smaller.

        `deadline`, of that one alone, in seconds of time.monotonic. Raises SendError, NoRouteInfo,
        and InvalidMessage for its properties.
        """
        posted = self._accumulator.add(message, None)
        try:
            return await posted
        except SendError as error:
            if error.code not in _TOO_LARGE or posted.count == 1:
                raise
        self._accumulator.limit(posted.size // 2)
        return await self._sender.send(prepare(message, posted.msg_id), None, deadline)
