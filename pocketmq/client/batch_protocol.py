"""Requests to one broker carried together, as the children of one parent (Batch-Protocol).

`BatchProtocol.request` is asked like the connection pool. What is asked of one broker in the same
turn of the event loop, with the same request code, goes out as one parent; a request that is alone
goes as it is. So nobody has to collect anything: offsets that are committed together, or the parts
of a `send_batch`, are asked for at once and find themselves in one parent.

Brokers that do not know the code answer REQUEST_CODE_NOT_SUPPORTED to the first parent. That is
remembered for as long as the connection lasts, and everything goes as single requests then. Such an
answer, unlike others, also says that nothing was executed. So does the refusal of a parent of more
children than its broker takes: that is remembered too, and they go again in smaller parents.
docs/batch-protocol.md has the rules.
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

#: A parent gets no more children once its body has this size; a quarter of what a frame may have,
#: so that the largest child still fits.
MAX_PARENT_BYTES = 4 * 1024 * 1024

#: What a broker says of a parent that it refuses for the number of its children.
_MORE_THAN = re.compile(r"more than (\d+) children")


class TooManyChildren(RemoteSystemError):
    """A parent was refused for their number, and nothing of it executed; `limit` may do."""

    def __init__(self, remark: str | None, broker: str, limit: int) -> None:
        super().__init__(remark, broker)
        self.limit = limit


class _Asked(NamedTuple):
    """One request that waits for company, and for its answer until `deadline` (loop time)."""

    header: Header | None
    body: bytes | bytearray | memoryview
    deadline: float
    repeatable: bool
    answer: asyncio.Future[Command]


class BatchProtocol:
    """Parents to the brokers of one client's pool."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        #: Children that a parent may have, by address, where the broker at the other end of the
        #: present connection takes less than MAX_CHILDREN; 1: it takes no parents.
        self._limits: dict[str, int] = {}
        #: The children of the next parent of each address and code.
        self._children: dict[tuple[str, RequestCode], list[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        pool.on_disconnected.append(self._forget)

    def serves(self, address: str) -> bool:
        """False once the broker has said that it does not know parents, or takes one child."""
        return self.limit(address) > 1

    def limit(self, address: str) -> int:
        """Children that a parent to this broker may have."""
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
        """The broker's answer, whatever its code; maybe as a child of a parent.

        `repeatable`: doing it twice does no harm, so that it is asked for alone when its parent
        failed. `timeout` in seconds, also if it is asked for more than once.

        Raises what the pool raises; the error of the parent's answer; BodyError when the answer of
        the parent lacks this child's, which may have been executed.
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
        """Send child frames as one parent; the answers by opaque. A missing child had no news,
        which the broker is asked to say so with `omit_not_found`.

        Raises RequestCodeNotSupported and TooManyChildren, which are remembered; the error of any
        other error answer; what the pool raises; BatchError for an answer that cannot be taken
        apart.
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
                    "broker %s serves no batches: asking one by one",
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
        """Remember what the broker said, if it explains the refusal of so many, else half."""
        limit = max(told if told < refused else refused // 2, 1)
        if limit < self.limit(address):
            log.info(
                "broker %s takes %d children in a batch",
                address,
                limit,
                extra=fields(broker=address),
            )
            self._limits[address] = limit
        return limit

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` to its end, which comes at the latest when the pool is closed."""
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
        # Those that were asked for together nearly always end together.
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
            return  # its asker gave up
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
    """However a parent ends, nobody waits for its answer for ever."""
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
    """Child frames, and whose they are, in portions that one parent takes: `limit` at most."""
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
