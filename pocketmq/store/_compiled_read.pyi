from pocketmq.message.buffers import ReadableBuffer

def read_together(
    entries: ReadableBuffer,
    log: memoryview,
    base: int,
    offset: int,
    queue_id: int,
    magic: int,
    topic: bytes,
    most_bytes: int,
    small: int,
) -> tuple[int, int, int, list[bytes | memoryview]] | None: ...
