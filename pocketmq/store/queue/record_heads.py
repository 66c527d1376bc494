"""Whether the entries of a consume queue and the heads of their records agree.

Every read checks the heads, since a damaged entry points at other bytes than its message. The head
repeats what the entry says (size, physical offset) and where the message belongs (queue id, queue
offset). The topic follows the body; it is compared for the first and the last of the messages that
are checked together, since all entries of a file that belongs to another queue are that queue's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct
from time import monotonic
from typing import Final

from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD, CorruptRecord
from pocketmq.store.encoding.record_encoder import head_size
from pocketmq.store.files import MappedFile
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.numpy_loader import numpy_loader
from pocketmq.store.queue.consume_queue import ConsumeQueue

_HEAD: Final = Struct(">iI4xi4xqq")  # size, magic, queue id, queue offset, physical offset
_unpack_head: Final = _HEAD.unpack_from
_SYS_FLAG: Final = 36  # its offset in a record
_unpack_int: Final = Struct(">i").unpack_from
_BLOCK: Final = 1024  # entries that are compared at once
_AHEAD: Final = 4 * 1024 * 1024  # bytes of the log that their records may take up
_WORTH_NUMPY: Final = 64  # fewer are compared one by one
_GOOD_FOR: Final = 1.0
_MOST_BLOCKS: Final = 1024


class RecordHeads:
    """Compares entries with heads before they are used.

    A reader that lags will come back for more, so the heads of the next messages are compared at
    once: by numpy it takes 0.1 µs a message, while one after the other takes 0.4 µs, a tenth of a
    pull. The result is good for `_GOOD_FOR` seconds.
    """

    def __init__(self, files: MappedFileQueue, clock: Callable[[], float] = monotonic) -> None:
        self._files = files
        self._clock = clock
        # Queue and number of a block → offsets within it that were compared, and until when that
        # holds.
        self._compared: OrderedDict[tuple[ConsumeQueue, int], tuple[int, int, float]] = (
            OrderedDict()
        )

    def agree(self, queue: ConsumeQueue, offset: int, end: int) -> bool:
        """Return whether the messages of `queue` from `offset` to `end` are where their entries
        say, and have its topic if that is compared."""
        while offset < end:
            block = offset // _BLOCK
            begin, behind, until = self._compared.get((queue, block), (0, 0, 0.0))
            if not begin <= offset < behind or self._clock() > until:
                behind = self._compare(queue, offset, end)
                if behind <= offset:
                    return False
            offset = behind
        return True

    def _compare(self, queue: ConsumeQueue, offset: int, end: int) -> int:
        """Compare entries from `offset` on, and return the offset of the first that is not."""
        block = offset // _BLOCK
        stop = min((block + 1) * _BLOCK, queue.max_offset)
        first = queue.entry(offset)
        file = self._files.find(first[0]) if first is not None else None
        if first is None or file is None:
            return offset
        if stop - offset < _WORTH_NUMPY or not numpy_loader.ask():
            return self._compare_few(file, queue, offset, min(end, stop))
        from pocketmq.store.encoding.entry_array import SoundPlace, count_sound

        _, entries = next(queue.entries(offset, stop))  # up to the end of the queue's file
        # Not so far ahead that pages are read which may never be needed.
        near = int(entries["physical"].searchsorted(first[0] + _AHEAD))
        if near < _WORTH_NUMPY:
            return self._compare_few(file, queue, offset, min(end, stop))
        place = SoundPlace(
            file.view, file.base_offset, queue.topic_field.magic, queue.queue_id, offset
        )
        count = count_sound(entries[:near], place)
        if count and not (
            has_topic(file, queue, first[0])
            and has_topic(file, queue, int(entries["physical"][count - 1]))
        ):
            count = 0
        behind = offset + count
        if count:
            now = self._clock()
            begin, known, until = self._compared.pop((queue, block), (0, 0, 0.0))
            if known != offset or until < now:
                begin, until = offset, now + _GOOD_FOR
            self._compared[queue, block] = begin, behind, until
            if len(self._compared) > _MOST_BLOCKS:
                self._compared.popitem(last=False)
        return behind

    def _compare_few(self, file: MappedFile, queue: ConsumeQueue, offset: int, end: int) -> int:
        ends = offset, end - 1
        for number, (physical, size, _) in enumerate(queue.read(offset, end - offset), offset):
            try:
                check_head(file, queue, number, physical, size)
            except CorruptRecord:
                return number
            if number in ends and not has_topic(file, queue, physical):
                return number
        return end


def few_agree(
    file: MappedFile,
    queue: ConsumeQueue,
    offset: int,
    physicals: Sequence[int],
    sizes: Sequence[int],
) -> bool:
    """Return whether the messages of `queue` from `offset` on are in `file` as their entries say,
    at these physical offsets and with these sizes."""
    view, base, file_size = file.view, file.base_offset, file.size
    magic, queue_id = queue.topic_field.magic, queue.queue_id
    for number, (physical, size) in enumerate(zip(physicals, sizes, strict=True), offset):
        at = physical - base
        if size < MIN_RECORD or at < 0 or at + size > file_size:
            return False
        if _unpack_head(view, at) != (size, magic, queue_id, number, physical):
            return False
    return has_topic(file, queue, physicals[0]) and (
        len(sizes) == 1 or has_topic(file, queue, physicals[-1])
    )


def has_topic(file: MappedFile, queue: ConsumeQueue, physical: int) -> bool:
    """Return whether the record at `physical` in `file`, whose head is good, has the topic of
    `queue`."""
    view, at = file.view, physical - file.base_offset
    body = at + head_size(_unpack_int(view, at + _SYS_FLAG)[0])
    begin = body + _unpack_int(view, body - 4)[0]
    topic = queue.topic_field.encoded
    return view[begin : begin + len(topic)] == topic


def check_head(
    file: MappedFile, queue: ConsumeQueue, offset: int, physical: int, size: int
) -> None:
    """Raise CorruptRecord, with the reason, unless the message at `offset` of `queue` is in `file`
    as its entry says."""
    at = physical - file.base_offset
    if size < MIN_RECORD or at < 0 or at + size > file.size:
        raise CorruptRecord(at, f"its entry says {size} bytes at physical offset {physical}")
    own_size, magic, queue_id, queue_offset, own_offset = _unpack_head(file.view, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecord(at, f"magic {magic:#010x} at physical offset {physical}")
    if (own_size, own_offset) != (size, physical):
        raise CorruptRecord(
            at,
            f"its entry says {size} bytes at physical offset {physical}, the record there "
            f"{own_size} at {own_offset}",
        )
    if (queue_id, queue_offset) != (queue.queue_id, offset):
        raise CorruptRecord(
            at,
            f"the record at physical offset {physical} is of queue {queue_id}, offset "
            f"{queue_offset}",
        )
