# cython: language_level=3
"""How a record of the commit log and an entry of a consume queue are laid out, for compiled code.

`pocketmq.message.record_layout` and `pocketmq.store.encoding.queue_entry` are the same in Python.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pocketmq._big_endian cimport put32, put64

cdef enum:
    HEAD_SIZE = 88  # with two IPv4 addresses, up to and including the body length
    CRC_AT = 8
    FLAG_AT = 16
    QUEUE_OFFSET_AT = 20
    PHYSICAL_OFFSET_AT = 28
    HOST_SIZE = 8  # an IPv4 address and a port
    CRC_BITS = 0x7FFFFFFF
    SEPARATOR = 2  # after each property
    MOST_PROPERTIES = 32767  # bytes
    ENTRY_SIZE = 20


cdef inline uint8_t *put_head(
    uint8_t *to,
    int64_t size,
    uint32_t magic,
    uint32_t crc,
    int64_t queue_id,
    int64_t flag,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t sys_flag,
    int64_t born_timestamp,
    const uint8_t *born_host,
    int64_t store_timestamp,
    const uint8_t *store_host,
    int64_t reconsume_times,
    int64_t body_size,
) noexcept nogil:
    """Write the part before the body of a record; return where the body goes."""
    to = put32(to, <uint32_t> size)
    to = put32(to, magic)
    to = put32(to, crc & CRC_BITS)
    to = put32(to, <uint32_t> queue_id)
    to = put32(to, <uint32_t> flag)
    to = put64(to, queue_offset)
    to = put64(to, physical_offset)
    to = put32(to, <uint32_t> sys_flag)
    to = put64(to, born_timestamp)
    memcpy(to, born_host, HOST_SIZE)
    to = put64(to + HOST_SIZE, store_timestamp)
    memcpy(to, store_host, HOST_SIZE)
    to = put32(to + HOST_SIZE, <uint32_t> reconsume_times)
    to = put64(to, 0)  # of a transaction
    return put32(to, <uint32_t> body_size)


cdef inline uint8_t *put_entry(
    uint8_t *to, int64_t physical_offset, int64_t size, int64_t tags_code
) noexcept nogil:
    to = put64(to, physical_offset)
    to = put32(to, <uint32_t> size)
    return put64(to, tags_code)
