"""A batch body that is about to become records.

`mixed_batch` and `uniform_batch` encode batches; `batch_encoder` chooses between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from pocketmq.store.encoding.record_encoder import TopicField, head_packer, head_size, pack_length

unpack_item: Final = Struct(">i8xii").unpack_from  # size, flag, body length
ITEM_HEAD: Final = 20

# The second part of a head, which records of one body length share: sysFlag to body length.
_REARS: Final = tuple(
    Struct(f">iq{born}sq{store}siqi").pack for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)


class Batch(Protocol):
    """A batch body that was taken apart.

    Attributes:
        count: its messages.
        size: bytes of their records.
        has_zeros: whether the properties of any message contain zeros.
    """

    count: int
    size: int
    has_zeros: bool

    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]:
        """Write the records at byte `at` of `buffer`.

        Returns their consume-queue entries, and the physical offset of each.
        """


class Shared(NamedTuple):
    """The fields that all records of a batch share.

    Hosts are packed, times are Unix ms. `suffix` holds encoded properties that are added to those
    of each message.
    """

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
        """Pack the bytes before a body, with zeros for the CRC and the offsets."""
        return head_packer(self.sys_flag)(
            size, self.topic.magic, 0, self.queue_id, flag, 0, 0, self.sys_flag,
            self.born_timestamp, self.born_host, self.store_timestamp, self.store_host,
            self.reconsume_times, 0, body_length,
        )  # fmt: skip

    def rear(self, body_length: int) -> bytes:
        """Pack the second part of a head: sysFlag to body length."""
        return _REARS[self.sys_flag >> 4 & 3](
            self.sys_flag, self.born_timestamp, self.born_host, self.store_timestamp,
            self.store_host, self.reconsume_times, 0, body_length,
        )  # fmt: skip

    def middle(self, properties_length: int) -> bytes:
        """Pack the bytes between body and properties."""
        return self.topic.encoded + pack_length(properties_length)
