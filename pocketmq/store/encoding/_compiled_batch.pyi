from collections.abc import Callable, Sequence

from pocketmq.message.buffers import ReadableBuffer

class CompiledBatch:
    count: int
    size: int
    has_zeros: bool
    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]: ...

def take_apart(
    body: ReadableBuffer,
    head: bytes,
    topic: bytes,
    suffix: bytes,
    queue_offset: int,
    suffix_code: int,
    crc: Callable[[ReadableBuffer], int],
    tags_code: Callable[[bytes], int],
) -> CompiledBatch | None: ...
