# cython: language_level=3
"""The messages of one queue, compared with their entries and copied together by compiled code.

`StoreReader` does the same for any read, and rebuilds entries that are damaged. So there are no
errors here: anything unusual is left to it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from pocketmq._big_endian cimport get32, get64

cdef enum:
    ENTRY = 20
    SIZE_IN_ENTRY = 8
    MAGIC_AT = 4  # where the fields are in a record
    QUEUE_ID_AT = 12
    QUEUE_OFFSET_AT = 20
    PHYSICAL_OFFSET_AT = 28
    SYS_FLAG_AT = 36
    HEAD_SIZE = 88  # with two IPv4 addresses, up to and including the body length
    BORN_HOST_IPV6 = 1 << 4
    STORE_HOST_IPV6 = 1 << 5
    LONGER = 12  # an IPv6 address than an IPv4 one
    LEAST_PROPERTIES = 2  # their length

cdef struct Queue:
    # What every record of it repeats.
    uint32_t magic
    uint32_t queue_id
    const uint8_t *topic
    Py_ssize_t topic_size


cdef inline int64_t size_of(const uint8_t *entry) noexcept nogil:
    return <int32_t> get32(entry + SIZE_IN_ENTRY)


cdef inline bint has_head(
    const uint8_t *record, int64_t size, int64_t physical, int64_t offset, Queue *queue
) noexcept nogil:
    """Whether a record begins here that is the message of an entry of the queue."""
    return (
        get32(record) == <uint32_t> size
        and get32(record + MAGIC_AT) == queue.magic
        and get32(record + QUEUE_ID_AT) == queue.queue_id
        and get64(record + QUEUE_OFFSET_AT) == offset
        and get64(record + PHYSICAL_OFFSET_AT) == physical
    )


cdef bint has_topic(const uint8_t *record, int64_t size, Queue *queue) noexcept nogil:
    """Whether a record whose head is good has the topic of the queue."""
    cdef uint32_t sys_flag = get32(record + SYS_FLAG_AT)
    cdef int64_t at = HEAD_SIZE
    at += LONGER * ((sys_flag & BORN_HOST_IPV6) != 0) + LONGER * ((sys_flag & STORE_HOST_IPV6) != 0)
    if at > size:
        return False
    at += get32(record + at - 4)
    return (
        at + queue.topic_size + LEAST_PROPERTIES <= size
        and memcmp(record + at, queue.topic, queue.topic_size) == 0
    )


def read_together(
    entries,
    log,
    int64_t base,
    int64_t offset,
    int64_t queue_id,
    uint32_t magic,
    bytes topic not None,
    int64_t most_bytes,
    int64_t small,
):
    """Read the messages of `entries`, which begin at the queue offset `offset`, from the file of
    the log that begins at `base`: as many as fit into `most_bytes`, but at least one.

    Returns how many these are, their bytes, where the last one ends in the file, and the records:
    a slice of `log` for those that lie side by side, or a copy of all where slices would have less
    than `small` bytes on average. Returns None if a record is not as its entry says.
    """
    cdef Py_buffer entries_buffer, log_buffer
    PyObject_GetBuffer(entries, &entries_buffer, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &log_buffer, PyBUF_SIMPLE)
        try:
            return _read(
                <const uint8_t *> entries_buffer.buf, entries_buffer.len // ENTRY, log,
                <const uint8_t *> log_buffer.buf, log_buffer.len, base, offset,
                Queue(
                    magic, <uint32_t> queue_id, <const uint8_t *> PyBytes_AS_STRING(topic),
                    PyBytes_GET_SIZE(topic),
                ),
                most_bytes, small,
            )
        finally:
            PyBuffer_Release(&log_buffer)
    finally:
        PyBuffer_Release(&entries_buffer)


cdef _read(
    const uint8_t *entries, Py_ssize_t most, log, const uint8_t *bytes_of_log, int64_t log_size,
    int64_t base, int64_t offset, Queue queue, int64_t most_bytes, int64_t small,
):
    cdef const uint8_t *entry = entries
    cdef const uint8_t *record
    cdef uint8_t *to = NULL
    cdef int64_t physical, size, at, end = 0, total = 0
    cdef Py_ssize_t count = 0, runs = 0, each
    cdef bytes joined = None
    while count < most:
        physical = get64(entry)
        size = size_of(entry)
        if physical < base or size < HEAD_SIZE or physical - base > log_size - size:
            return None
        if count and total + size > most_bytes:
            break
        at = physical - base
        if not count or at != end:
            runs += 1
        end = at + size
        total += size
        entry += ENTRY
        count += 1
    if not count:
        return None
    if runs > 1 and total < small * runs:
        joined = PyBytes_FromStringAndSize(NULL, total)
        to = <uint8_t *> PyBytes_AS_STRING(joined)
    for each in range(count):
        entry = entries + each * ENTRY
        physical = get64(entry)
        size = size_of(entry)
        record = bytes_of_log + (physical - base)
        if not has_head(record, size, physical, offset + each, &queue):
            return None
        if not 0 < each < count - 1 and not has_topic(record, size, &queue):
            return None
        if to != NULL:
            memcpy(to, record, size)
            to += size
    return count, total, end, _slices(entries, count, log, base) if joined is None else [joined]


cdef list _slices(const uint8_t *entries, Py_ssize_t count, log, int64_t base):
    cdef const uint8_t *entry
    cdef int64_t at, begin = get64(entries) - base, end = begin
    cdef Py_ssize_t each
    cdef list slices = []
    for each in range(count):
        entry = entries + each * ENTRY
        at = get64(entry) - base
        if at != end:
            slices.append(log[begin:end])
            begin = at
        end = at + size_of(entry)
    slices.append(log[begin:end])
    return slices
