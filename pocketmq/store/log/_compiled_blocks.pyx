# cython: language_level=3, boundscheck=False, wraparound=False
"""What `record_blocks` does for each record, compiled: the checksums of bodies, and tags codes.

Places are bytes of one view, from `begins[row]` on. ValueError if one lies outside of it.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

cdef enum:
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
