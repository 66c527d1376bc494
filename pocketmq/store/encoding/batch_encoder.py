"""Takes batch bodies apart, to be encoded straight into the commit log's buffer.

Taking a batch apart checks it before anything is written, and tells how many bytes its records
need. Then it is encoded at its place.

Large batches of messages of equal lengths go through `uniform_batch`, which needs numpy. The first
large batch starts a thread that imports it; until the import is done, such batches are encoded like
any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.store.encoding.batch import Batch, Shared
from pocketmq.store.encoding.mixed_batch import MixedBatch

_LARGE_BATCH: Final = 8 * 1024  # bytes from which on columns may be worth their fixed cost


class UniformBatches:
    """Loads `uniform_batch` and numpy on a thread, on first use.

    Attributes:
        take_apart: its `take_apart_uniform` once it is loaded; None before.
        loading: whether a thread was started.
    """

    def __init__(self) -> None:
        self.take_apart: Callable[[ReadableBuffer, Shared, int], Batch | None] | None = None
        self.loading = False

    def load(self) -> threading.Thread:
        """Start the thread."""
        self.loading = True
        thread = threading.Thread(target=self._load, name="store-load-numpy", daemon=True)
        thread.start()
        return thread

    def _load(self) -> None:
        from pocketmq.store.encoding.uniform_batch import take_apart_uniform

        self.take_apart = take_apart_uniform


uniform_batches: Final = UniformBatches()


def take_apart(
    body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int
) -> Batch:
    """Return the messages in `body`, at least one.

    `queue_offset` and `physical_offset` are those of the first message; the latter changes when the
    log goes on in a new file before the batch is written.

    Raises:
        BatchBodyError: lengths do not add up, or properties exceed 32 767 bytes.
    """
    if len(body) >= _LARGE_BATCH:
        take_apart_uniform = uniform_batches.take_apart
        if take_apart_uniform is not None:
            batch = take_apart_uniform(body, shared, queue_offset)
            if batch is not None:
                return batch
        elif not uniform_batches.loading:
            uniform_batches.load()
    return MixedBatch(body, shared, queue_offset, physical_offset)
