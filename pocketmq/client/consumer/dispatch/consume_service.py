"""The base of concurrent and orderly consumption: between process queues and handlers.

A service delivers one message at a time (`take`) and gets its outcome. It runs no task: worker
coroutines or the application's loop take messages from it, woken by `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from pocketmq.client.consumer.consumed_message import ConsumedMessage, Outcome
from pocketmq.client.consumer.dispatch.batch_waits import BatchWaits
from pocketmq.client.consumer.dispatch.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch.failure_policy import FailurePolicy
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.log_fields import fields
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MESSAGE_OVERHEAD
from pocketmq.message.payload import PayloadError

log = logging.getLogger(__name__)

Queue = ProcessQueue[ConsumedMessage]


#: Begins to consume a message. Returns None if it has already succeeded, which is not reported;
#: else an awaitable, which reports the outcome and raises only cancellations.
Consume: TypeAlias = Callable[[ConsumedMessage], Awaitable[None] | None]

#: Sends a message back to the broker with a delay level and the reason (SendBack).
GiveBack: TypeAlias = Callable[
    [ConsumedMessage, int, BaseException | None], Coroutine[Any, Any, bool]
]


class Fate(Enum):
    """What happens to a message that failed; the values are log lines."""

    REDELIVERED = "group %s: redelivering %s: %s"
    DROPPED = "group %s: dropping %s, because broadcast mode does not retry: %s"
    DEAD = "group %s: giving up %s, which goes to the dead letters: %s"


class Begun(NamedTuple):
    """A message whose handler waits: await `rest`; then `left` more messages may be consumed."""

    message: ConsumedMessage
    rest: Awaitable[None]
    left: int


class ConsumeService(ABC):
    """Delivers the messages of one consumer.

    `send_back` sends a message back to the broker with a delay level and the reason, and returns
    whether the broker took it; None in broadcast mode, in which failed messages are dropped.
    """

    _outcome: Outcome
    _wake: Callable[[], None]

    def __init__(
        self,
        limiter: PullLimiter,
        stats: ConsumeStats,
        names: ShownNames,
        send_back: GiveBack | None,
        policy: FailurePolicy,
        handlers: Mapping[str, AnyHandler],
    ) -> None:
        self.stopped = False
        self._policy = policy
        self._limiter = limiter
        self._stats = stats
        self._names = names
        self._send_back = send_back
        self._ready: deque[Queue] = deque()
        self._waits = BatchWaits(handlers, names, limiter, self._has_messages)
        #: Timer → message that waits for it.
        self._timers: dict[asyncio.TimerHandle, ConsumedMessage] = {}

    def connect(self, outcome: Outcome, wake: Callable[[], None]) -> None:
        """Set `outcome`, to which messages report, and `wake`, which is called when `take` may
        return a message again."""
        self._outcome = outcome
        self._wake = wake

    @property
    def has_ready(self) -> bool:
        """Whether `take` may return a message."""
        return bool(self._ready) and not self.stopped

    def arrived(self, pq: Queue) -> None:
        """Record that a queue has messages, just pulled or held back before."""
        self._waits.arrived(pq, monotonic())
        self._has_messages(pq)

    def _has_messages(self, pq: Queue) -> None:
        if not pq.ready:
            pq.ready = True
            self._ready.append(pq)
        self._wake()

    def run(self, consume: Consume, count: int) -> Begun | None:
        """Consume up to `count` messages; return at the first whose handler waits."""
        for left in reversed(range(count)):
            message = self.take()
            if message is None:
                break
            rest = consume(message)
            if rest is not None:
                return Begun(message, rest, left)
            self.succeeded(message)
        return None

    @abstractmethod
    def take(self) -> ConsumedMessage | None:
        """Return the next message to consume; None if none is ready."""

    def take_more(self, first: ConsumedMessage, count: int) -> list[ConsumedMessage]:
        """Return up to `count` messages for the batch of one that was taken: those that follow it
        in its queue and have the same topic."""
        pq: Queue = first.process_queue
        more: list[ConsumedMessage] = []
        if pq.dropped or pq.paused or self.stopped:
            return more
        names, buffer, now = self._names, pq.buffer, monotonic()
        same = first.topic if pq.retries or names.renames_all else None
        while buffer and len(more) < count:
            if same is not None and names.topic(buffer[0]) != same:
                break  # the retry topic has messages of several topics
            more.append(self._hand_out(pq, now))
        return more

    @abstractmethod
    def succeeded(self, message: ConsumedMessage) -> None:
        """Record that a message was consumed."""

    @abstractmethod
    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        """Retry or redeliver a message. `error`: the reason, None for one that is not logged; a
        ReconsumeLater has the delay."""

    def dropped(self, pq: Queue) -> None:
        """Forget the waiting messages of a queue that was dropped."""
        self._waits.forget(pq)
        for timer, message in list(self._timers.items()):
            if message.process_queue is pq:
                timer.cancel()
                del self._timers[timer]

    def stop(self) -> None:
        """Stop delivering messages."""
        self.stopped = True
        self._waits.stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _hand_out(self, pq: Queue, now: float) -> ConsumedMessage:
        # `ProcessQueue.take` for one message, inlined: this runs for every message.
        message = pq.buffer.popleft()
        pq.unfinished[message.queue_offset] = message
        names = self._names
        message.process_queue = pq
        if message.stored_body is None:
            message.stored_body = message.body
        message.outcome = self._outcome
        if pq.retries or names.renames_all:
            message.topic = names.topic(message)
        message.began = now
        if message.settled:  # by an earlier delivery
            message.settled = False
        return message

    def _finish(self, message: ConsumedMessage) -> bool:
        """Stop counting a message; return False if it was not counted."""
        pq: Queue = message.process_queue
        if not pq.done(message):
            return False
        if not pq.dropped:
            self._limiter.remove_sized(pq, 1, len(message.stored_body) + MESSAGE_OVERHEAD)
        return True

    def _count(self, message: ConsumedMessage, *, ok: bool) -> None:
        stats = self._stats.topics[message.topic]
        if ok:
            stats.ok += 1
        else:
            stats.failed += 1
        now = monotonic()
        stats.seconds += now - message.began
        message.process_queue.consumed_at = now

    def _later(
        self, delay: float, action: Callable[[ConsumedMessage], object], message: ConsumedMessage
    ) -> None:
        def due() -> None:
            del self._timers[timer]
            action(message)

        if not self.stopped:
            timer = asyncio.get_running_loop().call_later(delay, due)
            self._timers[timer] = message

    def _say(self, message: ConsumedMessage, error: BaseException | None, fate: Fate) -> None:
        """Log a failed message, with the traceback of an unexpected exception."""
        if error is None and fate is Fate.REDELIVERED:
            return
        traceback = None
        why = text_of(error)
        level = logging.WARNING
        if error is None or isinstance(error, ReconsumeLater):
            why = why or "its handler asked for it"
            level = logging.INFO if fate is Fate.REDELIVERED else logging.WARNING
        elif error.__traceback__ is None:  # not raised, such as the TimeoutError of a handler
            why = f"{type(error).__name__}: {why}"
        elif not isinstance(error, PayloadError):  # its traceback would only show the decoder
            why = "its handler failed"
            traceback = error
        log.log(
            level,
            fate.value,
            self._names.group,
            describe(message),
            why,
            exc_info=traceback,
            extra=self._fields(message),
        )

    def _fields(self, message: ConsumedMessage) -> dict[str, object]:
        return fields(
            group=self._names.group,
            queue=message.queue,
            topic=message.topic,
            msg_id=message.msg_id,
        )


def text_of(error: BaseException | None) -> str:
    """Return the text of an application's exception; empty if its `__str__` fails."""
    try:
        return "" if error is None else str(error)
    except Exception:
        return ""


def describe(message: ConsumedMessage) -> str:
    """Format a message for a log line."""
    return (
        f"message {message.msg_id} of {message.topic} ({message.queue} offset "
        f"{message.queue_offset}, delivery {message.reconsume_times + 1})"
    )
