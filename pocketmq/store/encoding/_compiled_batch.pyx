# cython: language_level=3
"""Batches without faults, taken apart and encoded by compiled code.

`mixed_batch` does the same for any batch, and finds out what is wrong with one. So there are no
errors here: anything unusual is left to it.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

from pocketmq._big_endian cimport get32, put16, put32, put64, put_bytes
from pocketmq.store.encoding._record cimport (
    CRC_AT, CRC_BITS, ENTRY_SIZE, FLAG_AT, MOST_PROPERTIES, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT,
    SEPARATOR, put_entry,
)

cdef enum:
    ITEM_HEAD = 20  # size, magic, CRC, flag, body length
    LEAST_HEAD = 40
    MARK = 5  # bytes of `TAGS\x01`

cdef bytes _mark = b"TAGS\x01"
cdef const uint8_t *TAGS_MARK = <const uint8_t *> PyBytes_AS_STRING(_mark)

cdef struct Item:
    int64_t size
    uint32_t flag
    const uint8_t *body
    int64_t body_length
    const uint8_t *properties
    int64_t properties_length


cdef bint next_item(const uint8_t *at, const uint8_t *end, Item *item) noexcept nogil:
    """Read the message that begins at `at`; false if its lengths do not add up."""
    cdef int64_t length
    if end - at < ITEM_HEAD + 2:
        return False
    item.size = <int32_t> get32(at)
    item.flag = get32(at + 12)
    item.body_length = <int32_t> get32(at + 16)
    item.properties_length = item.size - ITEM_HEAD - 2 - item.body_length
    if item.body_length <= 0 or item.properties_length < 0 or item.size > end - at:
        return False
    item.body = at + ITEM_HEAD
    item.properties = item.body + item.body_length + 2
    length = <int64_t> item.properties[-2] << 8 | item.properties[-1]
    return length == item.properties_length


cdef bint may_be_reserved(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Whether the name of a property begins as one that no message of a batch can have."""
    while end - at > 6:
        if at[0] == c"D":
            if memcmp(at, <const char *> "DELAY", 5) == 0:
                return True
        elif at[0] == c"T":
            if end - at > 9 and memcmp(at, <const char *> "TIMER_DEL", 9) == 0:
                return True
        elif at[0] == c"P":
            if memcmp(at, <const char *> "POP_CK", 6) == 0:
                return True
        elif at[0] == c"I":
            if memcmp(at, <const char *> "INNER_", 6) == 0:
                return True
        at = <const uint8_t *> memchr(at, SEPARATOR, end - at)
        if at == NULL:
            return False
        at += 1
    return False


cdef inline bint is_open(Item *item, Py_ssize_t suffix) noexcept nogil:
    """Whether a separator belongs between the properties and a suffix of this many bytes."""
    return (
        suffix > 0
        and item.properties_length > 0
        and item.properties[item.properties_length - 1] != SEPARATOR
    )


cdef const uint8_t *find_mark(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return where the first mark of tags is; NULL without one."""
    while at < end:
        at = <const uint8_t *> memchr(at, c"T", end - at)
        if at == NULL or end - at < MARK:
            return NULL
        if memcmp(at, TAGS_MARK, MARK) == 0:
            return at
        at += 1
    return NULL


cdef inline bytes _bytes(const uint8_t *at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *> at, size)


cdef class CompiledBatch:
    """A `pocketmq.store.encoding.batch.Batch`. See `take_apart`."""

    cdef readonly Py_ssize_t count
    cdef readonly int64_t size
    cdef readonly bint has_zeros
    cdef Py_buffer _body
    cdef bytes _head
    cdef bytes _topic
    cdef bytes _suffix
    cdef int64_t _queue_offset
    cdef int64_t _suffix_code
    cdef object _crc
    cdef object _tags_code
    # Those of the last tag, which usually is that of the next message.
    cdef bytes _tag
    cdef int64_t _code

    def __dealloc__(self):
        PyBuffer_Release(&self._body)

    def encode_into(self, bytearray buffer not None, Py_ssize_t at, int64_t physical_offset):
        """See `pocketmq.store.encoding.batch.Batch`."""
        cdef const uint8_t *here = <const uint8_t *> self._body.buf
        cdef const uint8_t *end = here + self._body.len
        cdef const uint8_t *head = <const uint8_t *> PyBytes_AS_STRING(self._head)
        cdef const uint8_t *topic = <const uint8_t *> PyBytes_AS_STRING(self._topic)
        cdef const uint8_t *suffix = <const uint8_t *> PyBytes_AS_STRING(self._suffix)
        cdef Py_ssize_t head_size = PyBytes_GET_SIZE(self._head)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(self._topic)
        cdef Py_ssize_t suffix_size = PyBytes_GET_SIZE(self._suffix)
        cdef bytes entries = PyBytes_FromStringAndSize(NULL, self.count * ENTRY_SIZE)
        cdef uint8_t *entry = <uint8_t *> PyBytes_AS_STRING(entries)
        cdef uint8_t *record
        cdef uint8_t *to
        cdef Item item
        cdef int64_t queue_offset = self._queue_offset
        cdef int64_t length, size
        cdef uint32_t crc
        cdef list offsets = []
        if at < 0 or self.size > PyByteArray_GET_SIZE(buffer) - at:
            raise ValueError("the buffer has not so much room")
        record = <uint8_t *> PyByteArray_AS_STRING(buffer) + at
        while here < end:
            next_item(here, end, &item)
            length = item.properties_length + suffix_size + is_open(&item, suffix_size)
            size = head_size + item.body_length + topic_size + 2 + length
            crc = self._crc(
                PyMemoryView_FromMemory(<char *> item.body, item.body_length, PyBUF_READ)
            )
            memcpy(record, head, head_size)
            put32(record, <uint32_t> size)
            put32(record + CRC_AT, crc & CRC_BITS)
            put32(record + FLAG_AT, item.flag)
            put64(record + QUEUE_OFFSET_AT, queue_offset)
            put64(record + PHYSICAL_OFFSET_AT, physical_offset)
            to = record + head_size
            put32(to - 4, <uint32_t> item.body_length)
            to = put_bytes(to, item.body, item.body_length)
            to = put_bytes(to, topic, topic_size)
            to = put16(to, <uint32_t> length)
            to = put_bytes(to, item.properties, item.properties_length)
            if is_open(&item, suffix_size):
                to[0] = SEPARATOR
                to += 1
            memcpy(to, suffix, suffix_size)
            entry = put_entry(
                entry, physical_offset, size, self._suffix_code or self._code_of(&item)
            )
            offsets.append(physical_offset)
            record += size
            physical_offset += size
            queue_offset += 1
            here += item.size
        return entries, offsets

    cdef int64_t _code_of(self, Item *item) except? -1:
        """Return the tags code of a message."""
        cdef const uint8_t *begin = item.properties
        cdef const uint8_t *end = begin + item.properties_length
        cdef const uint8_t *mark = find_mark(begin, end)
        cdef const uint8_t *stop
        cdef Py_ssize_t size
        if mark == NULL:
            return 0
        stop = <const uint8_t *> memchr(mark, SEPARATOR, end - mark)
        if stop == NULL:
            stop = end
        size = stop - mark
        # The last one counts, and one within another name or value does not.
        if find_mark(stop, end) != NULL or not (mark == begin or mark[-1] == SEPARATOR):
            return self._tags_code(_bytes(begin, item.properties_length))
        if size != PyBytes_GET_SIZE(self._tag) or memcmp(
            mark, PyBytes_AS_STRING(self._tag), size
        ) != 0:
            self._code = self._tags_code(_bytes(begin, item.properties_length))
            self._tag = _bytes(mark, size)
        return self._code


def take_apart(
    body,
    bytes head not None,
    bytes topic not None,
    bytes suffix not None,
    int64_t queue_offset,
    int64_t suffix_code,
    crc,
    tags_code,
):
    """Return the batch in `body`; None if its lengths do not add up, or a message may have a
    property that it cannot have.

    `head` is that of a record, of which only the size, the CRC, the flag, the offsets and the body
    length are rewritten; `topic` is what follows the body. `suffix` is added to the properties of
    each; `suffix_code` is its tags code. `crc` and `tags_code` are called with bytes.
    """
    cdef CompiledBatch batch = CompiledBatch.__new__(CompiledBatch)
    cdef const uint8_t *here
    cdef const uint8_t *end
    cdef Item item
    cdef int64_t length
    cdef int64_t overhead = PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(topic) + 2
    cdef Py_ssize_t suffix_size = PyBytes_GET_SIZE(suffix)
    if PyBytes_GET_SIZE(head) < LEAST_HEAD:
        raise ValueError("a head is longer")
    PyObject_GetBuffer(body, &batch._body, PyBUF_SIMPLE)
    here = <const uint8_t *> batch._body.buf
    end = here + batch._body.len
    while here < end:
        if not next_item(here, end, &item) or may_be_reserved(
            item.properties, item.properties + item.properties_length
        ):
            return None
        length = item.properties_length + suffix_size + is_open(&item, suffix_size)
        if length > MOST_PROPERTIES:
            return None
        if memchr(item.properties, 0, item.properties_length) != NULL:
            batch.has_zeros = True
        batch.size += overhead + item.body_length + length
        batch.count += 1
        here += item.size
    if not batch.count:
        return None
    batch._head = head
    batch._topic = topic
    batch._suffix = suffix
    batch._queue_offset = queue_offset
    batch._suffix_code = suffix_code
    batch._crc = crc
    batch._tags_code = tags_code
    batch._tag = b""
    return batch
