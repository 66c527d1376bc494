# cython: language_level=3, boundscheck=False, wraparound=False
"""What `record_blocks` does for each record, compiled: the checksums of bodies, and tags codes.

Places are bytes of one view, from `begins[row]` on. ValueError if one lies outside of it.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

cdef enum:
    SLOTS = 8192  # for topics whose numbers are remembered: that of a topic is its hash
    KNOWN = 16  # tags whose codes are remembered: they are compared one after another
    MARK = 5


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
    """See `record_blocks.record_places_in_python`; `least` bytes are a record's. Fills `places`, and
    returns how many there are and the byte behind the records."""
    cdef Py_ssize_t count = 0
    cdef int64_t size
    if at < 0 or stop > len(view) or least < 4:
        raise ValueError("the records lie outside of their view")
    while at <= stop - least and count < len(places):
        size = <int32_t> (
            <uint32_t> view[at] << 24 | <uint32_t> view[at + 1] << 16
            | <uint32_t> view[at + 2] << 8 | <uint32_t> view[at + 3]
        )
        if size < least or size > stop - at:
            break
        places[count] = at
        count += 1
        at += size
    return count, at


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
