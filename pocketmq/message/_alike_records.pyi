from collections.abc import Callable
from typing import TypeVar

from pocketmq.message.buffers import ReadableBuffer

M = TypeVar("M")

def read_alike(
    kind: Callable[..., M],
    messages: list[M],
    data: bytes,
    at: int,
    topic: str,
    topic_field: bytes,
    broker_name: str,
    *,
    crc: Callable[[ReadableBuffer], int],
    magic: int,
    unusual: int,
) -> int: ...
