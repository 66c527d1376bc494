# cython: language_level=3
"""`alike_records.read_alike_in_python`, compiled."""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from pocketmq._big_endian cimport get32, get64

from pocketmq.message.checksum import crc32
from pocketmq.message.record_layout import MAGIC_V1
from pocketmq.message.sysflag import COMPRESSED, HOST_MASK

cdef enum:
    HEAD_SIZE = 88  # of a record with two IPv4 addresses, up to and including the body length

cdef uint32_t _magic = MAGIC_V1
cdef int32_t _unusual = COMPRESSED | HOST_MASK


cdef inline bytes get_bytes(const uint8_t *at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *> at, size)


def read_alike(
    kind,
    list messages not None,
    bytes data not None,
    Py_ssize_t at,
    topic,
    bytes topic_field not None,
    broker_name,
):
    """See `alike_records.read_alike_in_python`."""
    cdef const uint8_t *begin = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef const uint8_t *end = begin + PyBytes_GET_SIZE(data)
    cdef const uint8_t *field = <const uint8_t *> PyBytes_AS_STRING(topic_field)
    cdef Py_ssize_t field_size = PyBytes_GET_SIZE(topic_field)
    cdef const uint8_t *here
    cdef int64_t size, body_length, properties
    cdef int32_t sys_flag
    cdef uint32_t body_crc
    cdef bytes born_host = b"", store_host = b""
    if not 0 <= at <= PyBytes_GET_SIZE(data):
        raise ValueError("it begins outside of the data")
    here = begin + at
    while end - here >= HEAD_SIZE:
        size = <int32_t> get32(here)
        sys_flag = <int32_t> get32(here + 36)
        body_length = <int32_t> get32(here + 84)
        properties = HEAD_SIZE + body_length + field_size + 2
        if (
            get32(here + 4) != _magic
            or sys_flag & _unusual
            or body_length <= 0
            or properties > size
            or size > end - here
            or memcmp(here + HEAD_SIZE + body_length, field, field_size) != 0
            or (<int64_t> here[properties - 2] << 8 | here[properties - 1]) != size - properties
        ):
            break
        body_crc = crc32(
            PyMemoryView_FromMemory(<char *> here + HEAD_SIZE, body_length, PyBUF_READ)
        )
        if <int64_t> (body_crc & 0x7FFFFFFF) != <int32_t> get32(here + 8):
            break
        # Mostly those of the previous record.
        if len(born_host) != 8 or memcmp(here + 48, PyBytes_AS_STRING(born_host), 8) != 0:
            born_host = get_bytes(here + 48, 8)
        if len(store_host) != 8 or memcmp(here + 64, PyBytes_AS_STRING(store_host), 8) != 0:
            store_host = get_bytes(here + 64, 8)
        messages.append(
            kind(
                topic,
                get_bytes(here + HEAD_SIZE, body_length),
                get_bytes(here + properties, size - properties),
                <int32_t> get32(here + 16),
                <int32_t> get32(here + 12),
                get64(here + 20),
                get64(here + 28),
                sys_flag,
                get64(here + 40),
                born_host,
                get64(here + 56),
                store_host,
                <int32_t> get32(here + 72),
                get64(here + 76),
                size,
                body_crc & 0x7FFFFFFF,
                broker_name,
            )
        )
        here += size
    return here - begin
