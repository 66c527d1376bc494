"""One long poll for many queues: the pulls of a consumer's fetchers as children of parents.

A parent is answered as soon as any child has messages, which also ends the wait of the others. Two
rules keep the number of parents, and the broker's work for each, low:

- Polls without messages are sent again here, together; their fetchers do not notice.
- A queue with messages is polled separately from those, together with others that had messages at
  the same moment, as long as that lasts: a busy queue must not end the wait of all idle ones each
  time. And each time messages end the wait of a parent, later parents have half as many children.

With these rules alone, every queue would end up in its own parent. Therefore all polls to one
broker end at common moments, the ends of *rounds*: queues without messages then begin the next
round in one parent again. Reference: issue 5516 of RocketMQ, "pull strategy".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count

import msgspec

from pocketmq.client.batch_protocol import BatchProtocol, TooManyChildren
from pocketmq.client.errors import RemotingClosed, RemotingError, is_silence
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import EncodeError
from pocketmq.remoting.frames.frame import Command, encode_request
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.shares import Shares

#: Most children of a parent at the beginning of a round, and the lower limit of that number: when
#: one child has messages, the broker reads all of them again.
MOST_GATHERED = 256
LEAST_GATHERED = 16
#: A round lasts this many times as long as a single poll is held: holding on costs the broker
#: nothing, but each renewal costs the same for every child.
ROUND = 2
#: How long polls without messages wait for each other before they are sent again, seconds. In that
#: time, the broker can serve others.
PAUSE = 0.005
#: A poll that would be held for less lasts until the end of the next round, seconds.
SHORTEST_HOLD = 0.5

#: suspendTimeoutMillis of all children of a parent except the first. That of the first limits the
#: wait of all, so the frames of the others can be the same in every round.
UNBOUNDED_HOLD = 600_000

_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_PULL = RequestCode.PULL_MESSAGE


class _Queue:
    """The state of a queue at one address.

    Attributes:
        opaque: of its polls, always the same: when a frame equals an earlier one, pocketmq's broker
            can continue the wait of that one.
        idle: whether its last poll ended without messages.
    """

    __slots__ = ("idle", "opaque")

    def __init__(self, opaque: int) -> None:
        self.opaque = opaque
        self.idle = False


class _Poll:
    """One fetcher's pull.

    Attributes:
        header: its suspendTimeoutMillis is UNBOUNDED_HOLD.
        began: when it was requested, loop time.
    """

    __slots__ = ("_frame", "answer", "began", "header", "opaque", "queue")

    def __init__(
        self,
        header: PullMessageRequestHeader,
        queue: _Queue,
        answer: asyncio.Future[Command],
        began: float,
    ) -> None:
        self.header = header
        self.queue = queue
        self.opaque = queue.opaque
        self.answer = answer
        self.began = began
        self._frame = b""

    def frame(self) -> bytes:
        """Return the encoded poll as a child; encoded once."""
        if not self._frame:
            self._frame = encode_request(_PULL, self.opaque, self.header, b"")
        return self._frame

    def first_frame(self, hold: int) -> bytes:
        """Return the encoded poll as the first child, which limits the wait of all."""
        return encode_request(_PULL, self.opaque, self.bounded(hold), b"")

    def bounded(self, hold: int) -> PullMessageRequestHeader:
        """Return the header with a suspendTimeoutMillis of `hold` ms."""
        return msgspec.structs.replace(self.header, suspend_timeout_millis=hold)


class SharedPolls:
    """The long polls of one consumer; a single one is held for up to `suspend` seconds, and
    answered within `slack` seconds after that."""

    def __init__(
        self, pool: ConnectionPool, batching: BatchProtocol, suspend: float, slack: float
    ) -> None:
        self._pool = pool
        self._batching = batching
        self._suspend = suspend
        self._slack = slack
        #: Address → topic and queue id → queue.
        self._known: dict[str, dict[tuple[str, int], _Queue]] = {}
        self._opaques = count()
        self._outstanding = Shares()
        self._round = suspend * ROUND
        #: Address → polls to be sent soon: new ones, and those without messages.
        self._fresh: dict[str, list[_Poll]] = {}
        self._quiet: dict[str, list[_Poll]] = {}
        self._portion: dict[str, int] = {}
        pool.on_disconnected.append(self._forget_broker)

    def __len__(self) -> int:
        """The number of queues with a wait at their broker that the next poll may continue."""
        return sum(map(len, self._known.values()))

    async def pull(self, address: str, header: PullMessageRequestHeader) -> Command:
        """Return the broker's answer to a long poll; PULL_NOT_FOUND at the end of a round. This
        sets suspendTimeoutMillis.

        Raises the errors of the pool, and the error of an answer for the whole parent.
        """
        loop = asyncio.get_running_loop()
        header.suspend_timeout_millis = UNBOUNDED_HOLD
        queue = self._queue(address, header.topic, header.queue_id)
        poll = _Poll(header, queue, loop.create_future(), loop.time())
        if queue.idle:
            queue.idle = False
            self._portion.pop(address, None)
            self._add(self._quiet, address, poll)
        else:
            self._add(self._fresh, address, poll)
        self._outstanding.add(address)
        try:
            return await poll.answer
        except RemotingError:
            # The broker may have left this address.
            self._forget(address, header.topic, header.queue_id)
            raise
        finally:
            self._outstanding.remove(address)

    def forget(self, topic: str, queue_id: int) -> None:
        """Forget a queue that is not pulled any more, at every address. If one of these still polls
        it, that costs one wait at the broker."""
        for address in tuple(self._known):
            self._forget(address, topic, queue_id)

    def _forget(self, address: str, topic: str, queue_id: int) -> None:
        queues = self._known.get(address)
        if queues is not None:
            queues.pop((topic, queue_id), None)
            if not queues:
                del self._known[address]

    def _forget_broker(self, address: str) -> None:
        """Forget the queues at an address: their waits have ended with the connection."""
        self._known.pop(address, None)
        self._portion.pop(address, None)

    def _queue(self, address: str, topic: str, queue_id: int) -> _Queue:
        queues = self._known.setdefault(address, {})
        queue = queues.get((topic, queue_id))
        if queue is None:
            queue = queues[topic, queue_id] = _Queue(next(self._opaques))
        return queue

    def _add(self, waiting: dict[str, list[_Poll]], address: str, poll: _Poll) -> None:
        polls = waiting.get(address)
        if polls is None:
            polls = waiting[address] = []
            loop = asyncio.get_running_loop()
            if waiting is self._fresh:
                loop.call_soon(self._send, waiting, address)
            else:
                loop.call_later(PAUSE, self._send, waiting, address)
        polls.append(poll)

    def _send(self, waiting: dict[str, list[_Poll]], address: str) -> None:
        wanted = [poll for poll in waiting.pop(address) if not poll.answer.done()]
        portion = min(self._portion.get(address, MOST_GATHERED), self._batching.limit(address))
        for at in range(0, len(wanted), portion):
            polls = wanted[at : at + portion]
            task = self._batching.spawn(self._carry(address, polls))
            task.add_done_callback(partial(_carried, polls))

    def _hold(self, address: str) -> int:
        """Return how long a poll that begins now is held, ms: until the end of the round if there
        are others."""
        if self._outstanding.of(address) <= 1 or not self._batching.serves(address):
            return int(self._suspend * 1000)
        left = self._round - asyncio.get_running_loop().time() % self._round
        if left < min(SHORTEST_HOLD, self._round / 2):
            left += self._round
        return int(left * 1000)

    async def _carry(self, address: str, polls: Sequence[_Poll]) -> None:
        hold = self._hold(address)
        timeout = hold / 1000 + self._slack
        if len(polls) == 1:
            await self._ask_one(address, polls[0], hold)
            return
        frames: list[bytes] = []
        children: list[_Poll] = []
        for poll in polls:
            try:
                frames.append(poll.frame() if frames else poll.first_frame(hold))
            except EncodeError as error:
                _fail((poll,), error)
            else:
                children.append(poll)
        if not children:
            return
        try:
            answers = await self._batching.parent(
                address, _PULL, frames, timeout, omit_not_found=True
            )
        except TooManyChildren as error:
            size = error.limit
            wanted = [child for child in children if not child.answer.done()]
            smaller = (wanted[at : at + size] for at in range(0, len(wanted), size))
            await asyncio.gather(*(self._carry(address, parent) for parent in smaller))
        except RemotingError as error:
            if is_silence(error) or error.code == ResponseCode.SYSTEM_BUSY:
                _fail(children, error)
            else:
                await self._ask_alone(address, children, hold)
        else:
            self._distribute(address, children, answers)

    def _distribute(
        self, address: str, polls: Sequence[_Poll], answers: dict[int, Command]
    ) -> None:
        news = any(answer.code != _NOT_FOUND for answer in answers.values())
        if news:
            portion = min(self._portion.get(address, MOST_GATHERED), len(polls))
            self._portion[address] = max(portion // 2, LEAST_GATHERED)
        # A poll that began a round ago is answered in any case, so that its fetcher can check
        # whether it still polls the right broker.
        over = asyncio.get_running_loop().time() - self._round
        for poll in polls:
            answer = answers.get(poll.opaque)
            if poll.answer.done():
                continue
            if answer is not None and answer.code != _NOT_FOUND:
                poll.answer.set_result(answer)
            elif not news or poll.began <= over:
                self._done(poll, answer)
            else:
                self._add(self._quiet, address, poll)

    def _done(self, poll: _Poll, answer: Command | None) -> None:
        """End a poll without messages."""
        header = poll.header
        poll.queue.idle = True
        if answer is None or "nextBeginOffset" not in answer.ext_fields:
            answer = Command(
                code=_NOT_FOUND, ext_fields={"nextBeginOffset": str(header.queue_offset)}
            )
        poll.answer.set_result(answer)

    async def _ask_alone(self, address: str, polls: Iterable[_Poll], hold: int) -> None:
        await asyncio.gather(*(self._ask_one(address, poll, hold) for poll in polls))

    async def _ask_one(self, address: str, poll: _Poll, hold: int) -> None:
        if poll.answer.done():
            return
        timeout = hold / 1000 + self._slack
        try:
            answer = await self._pool.request(address, _PULL, poll.bounded(hold), timeout=timeout)
        except RemotingError as error:
            _fail((poll,), error)
            return
        if poll.answer.done():
            return
        if answer.code == _NOT_FOUND and self._batching.serves(address):
            self._done(poll, answer)
        else:
            poll.answer.set_result(answer)


def _carried(polls: Sequence[_Poll], task: asyncio.Task[None]) -> None:
    """Fail the polls of a request that failed, so that no fetcher waits for ever."""
    if task.cancelled():
        _fail(polls, RemotingClosed("the shared poll was cancelled"))
    elif (error := task.exception()) is not None:
        _fail(polls, RemotingClosed(f"the shared poll failed: {error!r}"))


def _fail(polls: Iterable[_Poll], error: RemotingError) -> None:
    for poll in polls:
        if not poll.answer.done():
            poll.answer.set_exception(error)
