from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.remoting.frames._compiled_sends import SendAnswers
from pocketmq.remoting.serving.dispatch import ReadGuard
from pocketmq.remoting.serving.request import Response
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.writer import EncodedRun

class SendRun:
    def __init__(
        self,
        targets: Mapping[str, Any],
        examine: Callable[[str], int | None],
        crc: Callable[[ReadableBuffer], int],
        answers: SendAnswers,
        parent: Response,
        *,
        most_children: int,
        suffix: bytes,
        store_host: bytes,
        special: int,
        kept: int,
    ) -> None: ...
    def encode(
        self,
        data: ReadableBuffer,
        start: int,
        most: int,
        longest: int,
        guard: ReadGuard | None,
        source_ip: str,
        born_host: bytes,
        by_topic: dict[str, dict[int, ConsumeQueue]],
        buffer: bytearray,
        at: int,
        room: int,
        physical_offset: int,
        timestamp: int,
        most_body: int,
    ) -> EncodedRun | None: ...
    def refuse(
        self,
        data: ReadableBuffer,
        start: int,
        most: int,
        longest: int,
        refusals: Mapping[tuple[str, int], Response],
        unsupported: Mapping[int, Response],
    ) -> tuple[int, bytes, int, int, int] | None: ...
