"""Sends that are stored and wait for the disk or for replicas, and the limits on their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Final

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frames.frame import decode_command
from pocketmq.remoting.headers import SendMessageResponseHeader
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.log.slow_waits import SlowWaits

_LONG_WAITS: Final = 20_000  # more than the flushes that a disk completes in a second

#: A send, and its answer on success: the header of the answer, or its frame if the request takes
#: frames.
Waiting = tuple[Request[Any], SendMessageResponseHeader | bytes]


class GroupCommit:
    """Answers sends when they are safe; `clock` gives nanoseconds, to find long waits.

    Attributes:
        count, size: number of waiting sends, and the bytes of their records.
        full: a limit is reached; sends are refused.
        answered: number of sends answered since the start.
        long_waits: long waits for disk and replicas, and how many sends waited together.
    """

    def __init__(
        self,
        config: BrokerConfig,
        safety: PutSafety,
        *,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._clock = clock
        self.count = 0
        self.size = 0
        self.full = False
        self.answered = 0
        self.long_waits = SlowWaits(_LONG_WAITS)
        self._safety = safety
        self._most = config.send_thread_pool_queue_capacity
        self._most_bytes = config.max_in_flight_bytes

    def answer_when_safe(self, sends: Sequence[Waiting], end_offset: int, size: int) -> None:
        """Answer these sends when the log is safe up to the physical offset `end_offset`: with
        FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT if that takes too long, and with
        SERVICE_NOT_AVAILABLE if it fails.

        The bodies are dropped now: each keeps its read buffer alive, and new input would need more
        memory.
        """
        count = len(sends)
        for request, _ in sends:
            request.body = b""
        self._add(count, size)
        began = self._clock()

        def safe(code: int, remark: str | None) -> None:
            self._add(-count, -size)
            self.answered += count
            self.long_waits.note(self._clock() - began, count)
            for request, answer in sends:
                if type(answer) is not bytes:
                    request.reply(Response(code, remark, answer))  # type: ignore[arg-type]
                elif code == ResponseCode.SUCCESS:
                    request.reply_frame(answer)
                else:
                    fields = decode_command(answer[4:]).ext_fields
                    request.reply(Response(code, remark, ext_fields=fields))

        self._safety.when_safe(end_offset, safe)

    def nearly_full(self, count: int, size: int) -> bool:
        """Tell whether `count` more sends of `size` bytes could exceed the limits."""
        return self.count + count >= self._most or self.size + size > self._most_bytes

    def _add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        self.full = self.count >= self._most or self.size > self._most_bytes
