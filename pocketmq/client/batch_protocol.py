"""Combines requests to one broker: they become the children of one parent (Batch-Protocol).

`BatchProtocol.request` is called like that of the connection pool. Requests with the same code that
are made to one broker in the same turn of the event loop are sent as one parent; a single request
is sent as it is. So callers collect nothing: offsets that are committed together, or the parts of a
`send_batch`, are requested at once and end up in one parent.

Brokers that do not know the code answer REQUEST_CODE_NOT_SUPPORTED to the first parent. The client
remembers that while the connection lasts, and sends single requests. After this answer, unlike
others, it is certain that nothing was executed. The same holds if a broker refuses a parent because
it has too many children: the limit is remembered too, and the children are sent again in smaller
parents. The rules are in docs/batch-protocol.md.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pocketmq.client.errors import RemotingClosed, RemotingError, error_for, is_silence
from pocketmq.client.log_fields import fields
from pocketmq.remoting.answers.batch import MAX_CHILDREN, decode_answers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import (
    BodyError,
    EncodeError,
    RemoteSystemError,
    RemotingTimeout,
    RequestCodeNotSupported,
)
from pocketmq.remoting.frames.frame import Command, encode_request
from pocketmq.remoting.headers.admin import BatchRequestHeader
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.pending import TICK
from pocketmq.remoting.pool import ConnectionPool

log = logging.getLogger(__name__)

#: A parent gets no more children once its body has this size. It is a quarter of the largest frame,
#: so that the largest child still fits.
MAX_PARENT_BYTES = 4 * 1024 * 1024

#: The remark of a broker that refuses a parent with too many children.
_MORE_THAN = re.compile(r"more than (\d+) children")


class TooManyChildren(RemoteSystemError):
    """A parent was refused because of its number of children, and none was executed. Parents of
    `limit` children may be accepted."""

    def __init__(self, remark: str | None, broker: str, limit: int) -> None:
        super().__init__(remark, broker)
        self.limit = limit


class _Asked(NamedTuple):
    """A request to be sent with others, and its answer, due by `deadline` (loop time)."""

    header: Header | None
    body: bytes | bytearray | memoryview
    deadline: float
    repeatable: bool
    answer: asyncio.Future[Command]


class BatchProtocol:
    """Sends parents to the brokers of one client's pool."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        #: The largest number of children by address, for brokers that accept fewer than
        #: MAX_CHILDREN; 1: no parents. Valid for the present connection.
        self._limits: dict[str, int] = {}
        #: The children of the next parent of each address and code.
        self._children: dict[tuple[str, RequestCode], list[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        pool.on_disconnected.append(self._forget)

    def serves(self, address: str) -> bool:
        """Whether to send parents to this broker: True until it refuses them or all but one
        child."""
        return self.limit(address) > 1

    def limit(self, address: str) -> int:
        """Return how many children a parent to this broker may have."""
        return self._limits.get(address, MAX_CHILDREN)

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        *,
        timeout: float,
        repeatable: bool = False,
    ) -> Command:
        """Send a request, perhaps as a child of a parent, and return the answer with any code.

        `repeatable`: the request is idempotent, so it is sent again alone if its parent fails.
        `timeout`: seconds for all attempts together.

        Raises the errors of the pool; the error of the parent's answer; and BodyError if that lacks
        the answer of this child, which may have been executed.
        """
        if not self.serves(address):
            return await self._pool.request(address, code, header, body, timeout=timeout)
        loop = asyncio.get_running_loop()
        key = address, code
        children = self._children.get(key)
        if children is None:
            children = self._children[key] = []
            loop.call_soon(self._send, key)
        asked = _Asked(header, body, loop.time() + timeout, repeatable, loop.create_future())
        children.append(asked)
        return await asked.answer

    async def parent(
        self,
        address: str,
        code: RequestCode,
        frames: Sequence[bytes],
        timeout: float,
        *,
        omit_not_found: bool | None = None,
    ) -> dict[int, Command]:
        """Send child frames as one parent; return the answers by opaque. With `omit_not_found`,
        the broker leaves out the answers of pulls that found no message.

        Raises RequestCodeNotSupported and TooManyChildren, which are remembered; the error of any
        other error answer; the errors of the pool; BatchError for an answer that cannot be decoded.
        """
        answer = await self._pool.request(
            address,
            RequestCode.COMMON_BATCH_REQUEST,
            BatchRequestHeader(dispatch_code=code, omit_not_found=omit_not_found),
            b"".join(frames),
            timeout=timeout,
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            if self.serves(address):
                log.info(
                    "broker %s does not support batches: sending single requests",
                    address,
                    extra=fields(broker=address),
                )
            self._limits[address] = 1
        if (
            answer.code == ResponseCode.SYSTEM_ERROR
            and (told := _MORE_THAN.search(answer.remark or "")) is not None
        ):
            limit = self._lower(address, int(told[1]), len(frames))
            raise TooManyChildren(answer.remark, address, limit)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, address)
        return decode_answers(answer.body)

    def _forget(self, address: str) -> None:
        self._limits.pop(address, None)

    def _lower(self, address: str, told: int, refused: int) -> int:
        """Remember and return the limit that the broker gave, if it is below the refused number;
        else half of that number."""
        limit = max(told if told < refused else refused // 2, 1)
        if limit < self.limit(address):
            log.info(
                "broker %s accepts at most %d children in a batch",
                address,
                limit,
                extra=fields(broker=address),
            )
            self._limits[address] = limit
        return limit

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` to its end; closing the pool makes its requests fail."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send(self, key: tuple[str, RequestCode]) -> None:
        asked = [one for one in self._children.pop(key) if not one.answer.done()]
        address, code = key
        for frames, children in _parents(code, asked, self.limit(address)):
            task = self.spawn(self._carry(address, code, frames, children))
            task.add_done_callback(partial(_carried, children))

    async def _carry(
        self, address: str, code: RequestCode, frames: Sequence[bytes], children: Sequence[_Asked]
    ) -> None:
        if len(children) == 1:
            await self._ask_alone(address, code, children[0])
            return
        loop = asyncio.get_running_loop()
        deadline = max(child.deadline for child in children)
        # Children that were requested together nearly always end together.
        impatient = [
            loop.call_at(child.deadline, _expire, child, address)
            for child in children
            if child.deadline < deadline - TICK
        ]
        try:
            timeout = max(deadline - loop.time(), 0.0)
            answers = await self.parent(address, code, frames, timeout)
        except RequestCodeNotSupported:
            await asyncio.gather(*(self._ask_alone(address, code, child) for child in children))
        except TooManyChildren as error:
            wanted = [child for child in children if not child.answer.done()]
            smaller = _parents(code, wanted, error.limit)
            await asyncio.gather(*(self._carry(address, code, *parent) for parent in smaller))
        except RemotingError as error:
            again = [child for child in children if child.repeatable and not is_silence(error)]
            for child in children:
                if child not in again:
                    _fail(child, error)
            await asyncio.gather(*(self._ask_alone(address, code, child) for child in again))
        else:
            for opaque, child in enumerate(children):
                answer = answers.get(opaque)
                if answer is None:
                    _fail(child, BodyError(f"the answer to a batch lacks child {opaque}", address))
                elif not child.answer.done():
                    child.answer.set_result(answer)
        finally:
            for timer in impatient:
                timer.cancel()

    async def _ask_alone(self, address: str, code: RequestCode, child: _Asked) -> None:
        if child.answer.done():
            return  # the caller gave up
        timeout = max(child.deadline - asyncio.get_running_loop().time(), 0.0)
        try:
            answer = await self._pool.request(
                address, code, child.header, child.body, timeout=timeout
            )
        except RemotingError as error:
            _fail(child, error)
        else:
            if not child.answer.done():
                child.answer.set_result(answer)


def _carried(children: Iterable[_Asked], task: asyncio.Task[None]) -> None:
    """Fail the children of a parent that failed, so that no caller waits for ever."""
    if task.cancelled():
        why = "the batch request was cancelled"
    elif (error := task.exception()) is not None:
        why = f"the batch request failed: {error!r}"
    else:
        return  # each has its answer
    for child in children:
        _fail(child, RemotingClosed(why))


def _parents(
    code: RequestCode, asked: Iterable[_Asked], limit: int
) -> Iterator[tuple[list[bytes], list[_Asked]]]:
    """Divide children among parents of at most `limit`; yield frames and children of each."""
    frames: list[bytes] = []
    children: list[_Asked] = []
    size = 0
    for one in asked:
        try:
            frame = encode_request(code, len(frames), one.header, one.body)
        except EncodeError as error:
            _fail(one, error)
            continue
        if frames and (size + len(frame) > MAX_PARENT_BYTES or len(frames) == limit):
            yield frames, children
            frames, children, size = [], [], 0
            frame = encode_request(code, 0, one.header, one.body)
        frames.append(frame)
        children.append(one)
        size += len(frame)
    if frames:
        yield frames, children


def _expire(child: _Asked, address: str) -> None:
    _fail(child, RemotingTimeout("no answer in time to what was asked with others", address))


def _fail(child: _Asked, error: RemotingError) -> None:
    if not child.answer.done():
        child.answer.set_exception(error)
