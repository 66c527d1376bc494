"""One long poll for many queues: the pulls of a consumer's fetchers, as children of parents.

A parent is answered as soon as any of its children is, and the others with it, told "no news". So
two rules keep their number, and the work of the broker, low:

- What had no news is asked again here, at once and together; its fetcher never hears of it.
- A queue that had news is pulled apart from those, with the others that had news in the same
  moment, for as long as it goes on: a busy queue must not end the wait of all idle ones each time.

Without a way back, every queue would end up in a parent of its own. Therefore all polls to one
broker end at common moments, `suspend` seconds apart: what has had no news by then begins the next
round in one parent again. Reference: issue 5516 of RocketMQ, "pull strategy".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from client.batching import Batching
from client.errors import RemotingError, RequestCodeNotSupported, is_silence
from remoting.codes import RequestCode, ResponseCode
from remoting.frame import Command, encode_command
from remoting.headers.pull import PullMessageRequestHeader
from remoting.pool import ConnectionPool

__all__ = ["PollGatherer"]

#: Children of one parent. All of them are read again when one has news.
MAX_GATHERED = 256
#: A held pull is answered some time after its suspend time (spec 3.5), seconds.
HOLD_SLACK = 15.0
#: Polls that begin a new round wait so long for each other, seconds.
ROUND_DELAY = 0.005
#: A poll that would be held for less goes on until the end of the next round, seconds.
SHORTEST_HOLD = 0.5

_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_PULL = RequestCode.PULL_MESSAGE


class _Poll:
    """One fetcher's pull: `began` is the loop's time when it was asked for."""

    __slots__ = ("answer", "began", "header")

    def __init__(
        self, header: PullMessageRequestHeader, answer: asyncio.Future[Command], began: float
    ) -> None:
        self.header = header
        self.answer = answer
        self.began = began


class PollGatherer:
    """The long polls of one consumer; all are held for `suspend` seconds at most."""

    def __init__(self, pool: ConnectionPool, batching: Batching, suspend: float) -> None:
        self._pool = pool
        self._batching = batching
        self._suspend = suspend
        self._fresh: dict[str, list[_Poll]] = {}
        self._next_round: dict[str, list[_Poll]] = {}
        #: Queues whose last poll ended without news, as (address, topic, queue id).
        self._idle: set[tuple[str, str, int]] = set()

    async def pull(self, address: str, header: PullMessageRequestHeader) -> Command:
        """The broker's answer to a pull that it may hold; PULL_NOT_FOUND after `suspend` seconds,
        or somewhat more. suspendTimeoutMillis is set here.

        Raises what the pool raises, and the error of an answer that concerns all children.
        """
        loop = asyncio.get_running_loop()
        poll = _Poll(header, loop.create_future(), loop.time())
        key = address, header.topic, header.queue_id
        waiting = self._fresh
        if key in self._idle:
            self._idle.discard(key)
            waiting = self._next_round
        polls = waiting.get(address)
        if polls is None:
            polls = waiting[address] = []
            if waiting is self._fresh:
                loop.call_soon(self._send, waiting, address)
            else:
                loop.call_later(ROUND_DELAY, self._send, waiting, address)
        polls.append(poll)
        return await poll.answer

    def _send(self, waiting: dict[str, list[_Poll]], address: str) -> None:
        self._send_all(address, waiting.pop(address))

    def _send_all(self, address: str, polls: Sequence[_Poll]) -> None:
        wanted = [poll for poll in polls if not poll.answer.done()]
        for at in range(0, len(wanted), MAX_GATHERED):
            self._batching.spawn(self._carry(address, wanted[at : at + MAX_GATHERED]))

    def _hold(self) -> int:
        """How long a poll that begins now is held, ms: until the round ends."""
        passed = asyncio.get_running_loop().time() % self._suspend
        left = self._suspend - passed
        if left < min(SHORTEST_HOLD, self._suspend / 2):
            left += self._suspend
        return int(left * 1000)

    async def _carry(self, address: str, polls: Sequence[_Poll]) -> None:
        hold = self._hold()
        for poll in polls:
            poll.header.suspend_timeout_millis = hold
        timeout = hold / 1000 + HOLD_SLACK
        if len(polls) == 1 or not self._batching.serves(address):
            await self._ask_alone(address, polls, timeout)
            return
        frames = [encode_command(_PULL, n, header=poll.header) for n, poll in enumerate(polls)]
        try:
            answers = await self._batching.parent(address, _PULL, frames, timeout)
        except RemotingError as error:
            if is_silence(error) or error.code == ResponseCode.SYSTEM_BUSY:
                _fail(polls, error)
            else:
                await self._ask_alone(address, polls, timeout)
            return
        self._distribute(address, polls, answers)

    def _distribute(
        self, address: str, polls: Sequence[_Poll], answers: dict[int, Command]
    ) -> None:
        # Those who were held as long as they may be are done; with the clocks of two machines a
        # moment's tolerance is needed to find them.
        now = asyncio.get_running_loop().time()
        over = now - self._suspend + SHORTEST_HOLD
        ended = all(
            (answer := answers.get(n)) is None or answer.code == _NOT_FOUND
            for n in range(len(polls))
        )
        rest: list[_Poll] = []
        for n, poll in enumerate(polls):
            answer = answers.get(n)
            if poll.answer.done():
                continue
            if answer is not None and (answer.code != _NOT_FOUND):
                poll.answer.set_result(answer)
            elif ended or poll.began <= over:
                self._done(address, poll, answer)
            else:
                rest.append(poll)
        if rest:
            self._send_all(address, rest)

    def _done(self, address: str, poll: _Poll, answer: Command | None) -> None:
        """A poll without news is over."""
        header = poll.header
        self._idle.add((address, header.topic, header.queue_id))
        if answer is None or "nextBeginOffset" not in answer.ext_fields:
            answer = Command(
                code=_NOT_FOUND, ext_fields={"nextBeginOffset": str(header.queue_offset)}
            )
        poll.answer.set_result(answer)

    async def _ask_alone(self, address: str, polls: Iterable[_Poll], timeout: float) -> None:
        await asyncio.gather(*(self._ask_one(address, poll, timeout) for poll in polls))

    async def _ask_one(self, address: str, poll: _Poll, timeout: float) -> None:
        try:
            answer = await self._pool.request(address, _PULL, poll.header, timeout=timeout)
        except RemotingError as error:
            _fail((poll,), error)
            return
        if poll.answer.done():
            return
        if answer.code == _NOT_FOUND and self._batching.serves(address):
            self._done(address, poll, answer)
        else:
            poll.answer.set_result(answer)


def _fail(polls: Iterable[_Poll], error: RemotingError) -> None:
    for poll in polls:
        if not poll.answer.done():
            poll.answer.set_exception(error)
