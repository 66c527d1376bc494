# cython: language_level=3, boundscheck=False, wraparound=False
"""What `record_blocks` does for each record, compiled.

Places are bytes of one view, from `begins[row]` on. ValueError if one is outside of it.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

from pocketmq._big_endian cimport get32, get64

cdef extern from "string.h" nogil:
    void *memmem(const void *text, size_t size, const void *part, size_t part_size)

cdef enum:
    SLOTS = 32768  # for topics whose numbers are remembered: that of a topic is its hash
    KNOWN = 16  # tags whose codes are remembered: they are compared one after another
    MARK = 5
    HEAD = 84  # bytes before the length of the body, with IPv4 hosts
    IPV6_MORE = 12
    LEAST_RECORD = HEAD + 7


cdef struct Tag:
    const uint8_t *text
    Py_ssize_t size
    int64_t code


@cython.final
cdef class Body:
    """Bytes for a function that takes any object with a buffer."""

    cdef const uint8_t *begin
    cdef int64_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *> self.begin, self.size, True, flags)


cdef struct Topic:
    const uint8_t *text
    int64_t size
    int64_t number


def record_places(
    const uint8_t[::1] view not None,
    int64_t at,
    int64_t stop,
    int64_t least,
    int64_t[::1] places not None,
):
    """See `record_blocks.record_places_in_python`; `least` is the size of the smallest record.
    Fills `places`; returns the number of places and the offset after the records."""
    cdef Py_ssize_t count = 0
    cdef int64_t size
    if at < 0 or stop > len(view) or least < 4:
        raise ValueError("the records lie outside of their view")
    while at <= stop - least and count < len(places):
        size = <int32_t> get32(&view[at])
        if size < least or size > stop - at:
            break
        places[count] = at
        count += 1
        at += size
    return count, at


cdef inline int64_t head_size(int64_t sys_flag) noexcept nogil:
    return HEAD + ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1)) * IPV6_MORE


def heads(
    const uint8_t[::1] view not None,
    int64_t base,
    const int64_t[::1] places not None,
    uint32_t magic_v1,
    uint32_t magic_v2,
    int64_t[:, ::1] columns not None,
):
    """See `record_blocks.heads_in_python`. Fills `columns`, the fields of `Heads`, and returns how
    many records are good."""
    cdef Py_ssize_t row, count = len(places)
    cdef int64_t at, end, body, length, topic, topic_length, properties
    cdef uint32_t magic
    cdef int version_2
    cdef const uint8_t *record
    cdef const uint8_t *first
    if columns.shape[0] != 9 or columns.shape[1] != count:
        raise ValueError("there must be room for nine numbers of each record")
    for row in range(count):
        at = places[row]
        if not 0 <= at <= len(view) - LEAST_RECORD:
            raise ValueError("a record lies outside of its view")
        first = &view[0]
        record = first + at
        end = at + <int32_t> get32(record)
        if end > len(view):
            raise ValueError("a record lies outside of its view")
        magic = get32(record + 4)
        version_2 = magic == magic_v2
        if (magic != magic_v1 and not version_2) or get64(record + 28) != base + at:
            return row
        columns[3, row] = <int32_t> get32(record + 36)
        body = at + head_size(columns[3, row]) + 4
        if body + 3 > end:
            return row
        length = <int32_t> get32(first + body - 4)
        topic = body + length + 1 + version_2
        if length < 0 or topic + 2 > end:
            return row
        topic_length = first[topic - 1]
        if version_2:
            topic_length |= <int64_t> first[topic - 2] << 8
        properties = topic + topic_length
        if properties + 2 > end:
            return row
        if properties + 2 + (<int64_t> first[properties] << 8 | first[properties + 1]) != end:
            return row
        columns[0, row] = end - at
        columns[1, row] = <int32_t> get32(record + 12)
        columns[2, row] = get64(record + 20)
        columns[4, row] = <int32_t> get32(record + 8)
        columns[5, row], columns[6, row] = body, length
        columns[7, row], columns[8, row] = topic, topic_length
    return count


def properties_begins(
    const uint8_t[::1] view not None,
    const int64_t[::1] places not None,
    uint32_t magic_v2,
    int64_t[::1] begins not None,
):
    """See `record_blocks.properties_begins_in_python`; fills `begins`."""
    cdef Py_ssize_t row
    cdef int64_t at, head, topic
    cdef const uint8_t *first
    if len(begins) != len(places):
        raise ValueError("each record needs room for a place")
    for row in range(len(places)):
        at = places[row]
        if not 0 <= at <= len(view) - LEAST_RECORD:
            raise ValueError("a record lies outside of its view")
        first = &view[0]
        head = at + head_size(<int32_t> get32(first + at + 36))
        topic = head + 5
        if head <= len(view) - 4:
            topic += <int32_t> get32(first + head)
        if not head < topic <= len(view) - 1:
            raise ValueError("a body lies outside of its view")
        begins[row] = topic + 2 + first[topic - 1]
        if get32(first + at + 4) == magic_v2:
            begins[row] = topic + 3 + (<int64_t> first[topic - 1] << 8 | first[topic])


def topic_numbers(
    const uint8_t[::1] view not None,
    const int64_t[::1] begins not None,
    const int64_t[::1] lengths not None,
    int64_t[::1] numbers not None,
    number_of,
):
    """See `record_blocks.topic_numbers_in_python`; `number_of` gives the number of one topic."""
    cdef Py_ssize_t row, count = len(begins)
    cdef int64_t at, length, place
    cdef uint32_t hashed
    cdef const uint8_t *text
    cdef Topic *slot
    cdef Topic *slots
    if len(lengths) != count or len(numbers) != count:
        raise ValueError("each topic needs a length and room for its number")
    slots = <Topic *> calloc(SLOTS, sizeof(Topic))
    if slots == NULL:
        raise MemoryError
    try:
        for row in range(count):
            at, length = begins[row], lengths[row]
            if not 0 <= at <= len(view) or not 0 <= length <= len(view) - at:
                raise ValueError("a topic lies outside of its view")
            if not length:
                numbers[row] = number_of(b"")
                continue
            text = &view[0] + at
            hashed = 2166136261  # FNV-1a
            for place in range(length):
                hashed = (hashed ^ text[place]) * 16777619
            slot = &slots[(hashed ^ hashed >> 16) % SLOTS]
            if slot.size != length or memcmp(slot.text, text, length) != 0:
                slot.number = number_of(PyBytes_FromStringAndSize(<const char *> text, length))
                slot.text, slot.size = text, length
            numbers[row] = slot.number
    finally:
        free(slots)


def first_wrong_crc(
    const uint8_t[::1] view not None,
    const int64_t[::1] begins not None,
    const int64_t[::1] lengths not None,
    const int32_t[::1] expected not None,
    crc,
    uint32_t mask,
):
    """See `record_blocks.first_wrong_crc_in_python`."""
    cdef Py_ssize_t row, count = len(begins)
    cdef int64_t at, length
    cdef Body body = Body()
    if len(lengths) != count or len(expected) != count:
        raise ValueError("each body needs a length and a checksum")
    for row in range(count):
        at, length = begins[row], lengths[row]
        if not 0 <= at <= len(view) or not 0 <= length <= len(view) - at:
            raise ValueError("a body lies outside of its view")
        if not length:
            continue
        body.begin = &view[0] + at
        body.size = length
        if (<uint32_t> crc(body) & mask) != <uint32_t> expected[row]:
            return row
    return count


def tags_codes(
    const uint8_t[::1] view not None,
    const int64_t[::1] begins not None,
    const int64_t[::1] ends not None,
    int64_t[::1] codes not None,
    tags_code,
):
    """See `record_blocks.tags_codes_in_python`; `tags_code` gives the code of one text."""
    cdef Py_ssize_t row, count = len(begins)
    cdef int known = 0, newest = 0, number
    cdef Tag tags[KNOWN]
    cdef const uint8_t *here
    cdef const uint8_t *end
    cdef const uint8_t *stop
    cdef const uint8_t *tag
    cdef Py_ssize_t size = 0
    if len(ends) != count or len(codes) != count:
        raise ValueError("each text needs an end and room for its code")
    for row in range(count):
        if not 0 <= begins[row] <= ends[row] <= len(view):
            raise ValueError("a text lies outside of its view")
        codes[row] = 0
        if begins[row] == ends[row]:
            continue
        here, end, tag = &view[0] + begins[row], &view[0] + ends[row], NULL
        while here < end:
            stop = <const uint8_t *> memchr(here, 2, end - here)
            if stop == NULL:
                stop = end
            if stop - here >= MARK and memcmp(here, b"TAGS\x01", MARK) == 0:
                tag, size = here + MARK, stop - here - MARK
            here = stop + 1
        if tag == NULL:
            continue
        for number in range(known):
            if tags[number].size == size and memcmp(tags[number].text, tag, size) == 0:
                codes[row] = tags[number].code
                break
        else:
            codes[row] = tags_code(
                PyBytes_FromStringAndSize(<const char *> &view[begins[row]], end - &view[begins[row]])
            )
            if size:  # of an empty one, an earlier property may count
                tags[newest] = Tag(tag, size, codes[row])
                newest = (newest + 1) % KNOWN
                known = min(known + 1, KNOWN)


def rows_with(
    const uint8_t[::1] view not None,
    const int64_t[::1] begins not None,
    const int64_t[::1] ends not None,
    const uint8_t[::1] part not None,
    int64_t[::1] rows not None,
):
    """See `record_blocks.rows_with_in_python`. Fills `rows`; returns the number of them."""
    cdef Py_ssize_t row, found = 0, count = len(begins)
    if len(ends) != count or len(rows) != count or not len(part):
        raise ValueError("each text needs an end and room for its row")
    for row in range(count):
        if not 0 <= begins[row] <= ends[row] <= len(view):
            raise ValueError("a text lies outside of its view")
        if begins[row] < ends[row] and memmem(
            &view[0] + begins[row], ends[row] - begins[row], &part[0], len(part)
        ) != NULL:
            rows[found] = row
            found += 1
    return found
