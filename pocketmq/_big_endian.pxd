# cython: language_level=3
"""Numbers in big-endian order, as frames and records have them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint32_t get32(const uint8_t *at) noexcept nogil:
    return <uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | at[3]


cdef inline int64_t get64(const uint8_t *at) noexcept nogil:
    return <int64_t> (<uint64_t> get32(at) << 32 | get32(at + 4))


# These return the place after what they write.


cdef inline uint8_t *put16(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t> (value >> 8)
    at[1] = <uint8_t> value
    return at + 2


cdef inline uint8_t *put32(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t> (value >> 24)
    at[1] = <uint8_t> (value >> 16)
    at[2] = <uint8_t> (value >> 8)
    at[3] = <uint8_t> value
    return at + 4


cdef inline uint8_t *put64(uint8_t *at, int64_t value) noexcept nogil:
    return put32(put32(at, <uint32_t> (<uint64_t> value >> 32)), <uint32_t> value)


cdef inline uint8_t *put_bytes(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size
