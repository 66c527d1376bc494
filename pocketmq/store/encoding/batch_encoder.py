"""Takes batch bodies apart, to be encoded straight into the commit log's buffer.

Taking a batch apart checks it before anything is written, and tells how many bytes its records
need. Then it is encoded at its place.

With the accelerator, compiled code does both. Without it, large batches of messages of equal
lengths go through `uniform_batch`, once numpy is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq._accelerator import accelerator_wanted
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import crc32
from pocketmq.message.limits import MOST_IN_UNUSUAL_BATCH
from pocketmq.store.encoding.batch import Batch, Shared
from pocketmq.store.encoding.mixed_batch import MixedBatch
from pocketmq.store.encoding.tags_codes import tags_code
from pocketmq.store.numpy_loader import numpy_loader

_LARGE_BATCH: Final = 8 * 1024  # bytes from which on columns may be worth their fixed cost


Taker = Callable[[ReadableBuffer, Shared, int, int], Batch]
"""`take_apart`, or what does the same by compiled code."""


def batch_taker() -> Taker:
    """Return what takes the batches of a store apart."""
    if not accelerator_wanted():
        return take_apart
    try:
        from pocketmq.store.encoding import _compiled_batch
    except ImportError:
        return take_apart
    return partial(_take_apart_compiled, _compiled_batch.take_apart)


def _take_apart_compiled(
    compiled: Callable[..., Batch | None],
    body: ReadableBuffer,
    shared: Shared,
    queue_offset: int,
    physical_offset: int,
) -> Batch:
    suffix = shared.suffix
    batch = compiled(
        body, shared.head(0, 0, 0), shared.topic.encoded, suffix, queue_offset, tags_code(suffix),
        crc32, tags_code,
    )  # fmt: skip
    if batch is not None:
        return batch
    # Its error says what is wrong.
    return MixedBatch(body, shared, queue_offset, physical_offset, MOST_IN_UNUSUAL_BATCH)


def take_apart(
    body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int
) -> Batch:
    """Return the messages in `body`, at least one.

    `queue_offset` and `physical_offset` are those of the first message; the latter changes when the
    log goes on in a new file before the batch is written.

    Raises:
        BatchBodyError: lengths do not add up, or properties exceed 32 767 bytes.
    """
    if len(body) >= _LARGE_BATCH and numpy_loader.ask():
        from pocketmq.store.encoding.uniform_batch import take_apart_uniform

        batch = take_apart_uniform(body, shared, queue_offset)
        if batch is not None:
            return batch
    return MixedBatch(body, shared, queue_offset, physical_offset)
