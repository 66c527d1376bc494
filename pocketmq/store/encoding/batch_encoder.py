"""The messages of a batch body as records, written straight to where the commit log gathers them.

A batch is taken apart first: that refuses a bad one before anything is written, and tells how many
bytes its records have. Then it is encoded at its place.

Large batches of messages of equal lengths go through `store.encoding.uniform_batch`, which needs
numpy: the first one has it loaded, on a thread, and until it is there they are encoded as any
others are.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, Protocol

from pocketmq.message.batch_body import BatchBodyError
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.limits import MAX_PROPERTIES
from pocketmq.message.properties import TAGS, find
from pocketmq.message.tags import tag_hash
from pocketmq.store.encoding.record_encoder import TopicField, head_packer, head_size, pack_length
from pocketmq.store.queue.queue_entry import pack_entries

unpack_item: Final = Struct(">i8xii").unpack_from  # size, flag, body length
ITEM_HEAD: Final = 20
_SMALL_BODY: Final = 4096
_LARGE_BATCH: Final = 8 * 1024
"""Bytes from which on columns may be worth their fixed cost."""

# A head in two: what differs from message to message, and what those of one body length share.
_FRONT: Final = "iIiiiqq"  # size, magic, CRC, queue id, flag, queue offset, physical offset
_pack_front: Final = Struct(f">{_FRONT}").pack
_REARS: Final = tuple(
    Struct(f">iq{born}sq{store}siqi").pack for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)  # sysFlag … bodyLength

SEPARATOR: Final = 2
TAGS_MARK: Final = b"TAGS\x01"
SEPARATED_TAGS: Final = b"\x02" + TAGS_MARK
# Encoded tag → code: applications use a handful; a peer that sends ever new ones starts it over.
_known_tags: dict[bytes, int] = {}
_MOST_TAGS: Final = 2048


class Shared(NamedTuple):
    """What the records of a batch have in common. Hosts are packed, times Unix ms; `suffix` are
    the encoded properties that each message gets behind its own."""

    topic: TopicField
    suffix: bytes
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int

    @property
    def overhead(self) -> int:
        """Bytes of a record that are neither body nor properties."""
        return head_size(self.sys_flag) + self.topic.overhead

    def head(self, size: int, flag: int, body_length: int) -> bytes:
        """What lies before a body, zeros where the CRC and the offsets go."""
        return head_packer(self.sys_flag)(
            size, self.topic.magic, 0, self.queue_id, flag, 0, 0, self.sys_flag,
            self.born_timestamp, self.born_host, self.store_timestamp, self.store_host,
            self.reconsume_times, 0, body_length,
        )  # fmt: skip

    def rear(self, body_length: int) -> bytes:
        """The second part of a head."""
        return _REARS[self.sys_flag >> 4 & 3](
            self.sys_flag, self.born_timestamp, self.born_host, self.store_timestamp,
            self.store_host, self.reconsume_times, 0, body_length,
        )  # fmt: skip

    def middle(self, properties_length: int) -> bytes:
        """What lies between body and properties."""
        return self.topic.encoded + pack_length(properties_length)


def take_apart(
    body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int
) -> Batch:
    """The messages in `body`, at least one; `queue_offset` is the first one's, and
    `physical_offset` will be so unless the log goes on in a new file before.

    Raises:
        BatchBodyError: lengths do not add up, or properties exceed 32 767 bytes.
    """
    if len(body) >= _LARGE_BATCH:
        if _even.take_apart is not None:
            batch = _even.take_apart(body, shared, queue_offset)
            if batch is not None:
                return batch
        elif not _even.loading:
            _even.load()
    return _MixedBatch(body, shared, queue_offset, physical_offset)


class _EvenBatches:
    """`pocketmq.store.encoding.uniform_batch`, when it is there."""

    def __init__(self) -> None:
        self.take_apart: Callable[[ReadableBuffer, Shared, int], Batch | None] | None = None
        self.loading = False

    def load(self) -> threading.Thread:
        """Load it on a thread."""
        self.loading = True
        thread = threading.Thread(target=self._load, name="store-load-numpy", daemon=True)
        thread.start()
        return thread

    def _load(self) -> None:
        self.take_apart = importlib.import_module(
            "pocketmq.store.encoding.uniform_batch"
        ).take_apart_uniform


_even: Final = _EvenBatches()


class Batch(Protocol):
    """A batch body that was taken apart.

    Attributes:
        count: its messages.
        size: bytes of their records.
    """

    count: int
    size: int

    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]:
        """Write the records at byte `at` of `buffer`.

        Returns their consume-queue entries, and the physical offset of each.
        """


class _MixedBatch:
    """Messages of any lengths, encoded at once for the place where they will most likely lie."""

    def __init__(
        self, body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int
    ) -> None:
        """Raises as `take_apart` does."""
        self._body = body
        self._shared = shared
        self._queue_offset = queue_offset
        self._physical_offset = physical_offset
        self._data, self._entries = _encode(body, shared, queue_offset, physical_offset)
        self.count = len(self._entries) // 3
        self.size = len(self._data)

    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]:
        """See `Batch`."""
        if physical_offset != self._physical_offset:
            other = _MixedBatch(self._body, self._shared, self._queue_offset, physical_offset)
            return other.encode_into(buffer, at, physical_offset)
        buffer[at : at + self.size] = self._data
        return pack_entries(self._entries), self._entries[::3]


def _encode(
    body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int
) -> tuple[bytes, list[int]]:
    """The records, and what the queue gets of them, flat. Raises as `take_apart` does."""
    view = memoryview(body)
    # Slicing bytes is faster than slicing memoryviews, as long as there is little to copy.
    source = bytes(body)
    end = len(source)
    at = 0
    magic, queue_id, overhead = shared.topic.magic, shared.queue_id, shared.overhead
    suffix = shared.suffix
    suffix_length = len(suffix)
    suffix_code = tags_code(suffix)
    # Made once for each length, of which most batches have few.
    rears: dict[int, bytes] = {}
    middles: dict[int, bytes] = {}
    parts: list[ReadableBuffer] = []
    entries: list[int] = []
    while at < end:
        try:
            item_size, flag, body_length = unpack_item(source, at)
        except StructError:
            raise BatchBodyError(f"{end - at} bytes at byte {at} are no message") from None
        body_begin = at + ITEM_HEAD
        body_end = body_begin + body_length
        next_at = at + item_size
        length = next_at - body_end - 2
        if body_length < 0 or length < 0 or next_at > end:
            raise BatchBodyError(
                f"at byte {at}: a message of {item_size} bytes with a body of {body_length}, "
                f"{end - at} bytes are left"
            )
        # Their length follows from the others; it must say the same.
        if source[body_end] << 8 | source[body_end + 1] != length:
            raise BatchBodyError(f"at byte {at}: its parts do not add up to its size {item_size}")
        large = body_length > _SMALL_BODY
        message_body = view[body_begin:body_end] if large else source[body_begin:body_end]
        properties = source[body_end + 2 : next_at]
        tail = suffix
        if suffix_length:
            if length and properties[-1] != SEPARATOR:
                tail = b"\x02" + suffix
            length += len(tail)
        middle = middles.get(length)
        if middle is None:
            if length > MAX_PROPERTIES:
                raise BatchBodyError(
                    f"at byte {at}: properties of {length} bytes, {MAX_PROPERTIES} are allowed"
                )
            middle = middles[length] = shared.middle(length)
        rear = rears.get(body_length)
        if rear is None:
            rear = rears[body_length] = shared.rear(body_length)
        size = overhead + body_length + length
        parts += (
            _pack_front(
                size, magic, crc32(message_body) & CRC_MASK, queue_id, flag, queue_offset,
                physical_offset,
            ),
            rear,
            message_body,
            middle,
            properties,
            tail,
        )  # fmt: skip
        entries += (physical_offset, size, suffix_code or tags_code(properties))
        physical_offset += size
        queue_offset += 1
        at = next_at
    if not entries:
        raise BatchBodyError("an empty batch")
    return b"".join(parts), entries


def tags_code(properties: bytes) -> int:
    """The tags code of encoded properties. The last TAGS wins, as in the decoded map."""
    at = properties.rfind(TAGS_MARK)
    if at < 0:
        return 0
    if at and properties[at - 1] != SEPARATOR:  # the end of a longer name, or within a value
        at = properties.rfind(SEPARATED_TAGS) + 1
        if not at and not properties.startswith(TAGS_MARK):
            return 0
    end = properties.find(SEPARATOR, at)
    tag = properties[at + 5 : end] if end >= 0 else properties[at + 5 :]
    code = _known_tags.get(tag)
    return _new_tags_code(tag, properties) if code is None else code


def _new_tags_code(tag: bytes, properties: bytes) -> int:
    if not tag:  # an empty value counts for nothing, but an earlier one may
        return tag_hash(find(str(properties, "utf-8", "replace"), TAGS) or "")
    if len(_known_tags) >= _MOST_TAGS:
        _known_tags.clear()
    code = _known_tags[tag] = tag_hash(str(tag, "utf-8", "replace"))
    return code
