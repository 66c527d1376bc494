# cython: language_level=3
"""What compiled code of other packages uses of `_compiled_sends.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    MOST_SENDS = 1024  # of one run: more than a parent has children
    MOST_UNIQUE_ID = 255
    MOST_FIELDS = 17  # the letters of SEND_MESSAGE_V2, and those of a signed request

cdef struct Text:
    const uint8_t *at
    Py_ssize_t size

cdef struct Field:
    Text name
    Text value

cdef struct Send:
    int64_t code
    int64_t opaque
    Text topic
    int64_t queue_id
    int64_t sys_flag
    int64_t born_timestamp
    int64_t flag
    Text properties
    bint escaped  # the properties are part of a JSON text
    int64_t reconsume_times
    Text body
    bint binary
    bint is_other  # not a send: its fields are ignored
    bint is_parent  # a parent of the Batch-Protocol, whose body has requests of `dispatch_code`
    int64_t dispatch_code
    Text access_key
    Text signature
    uint32_t seen  # extFields, a bit for each letter of SEND_MESSAGE_V2, and for those of signing
    int known  # of the fields
    Field fields[MOST_FIELDS]  # in the order of the request, without the signature

cdef const uint8_t *decode(
    const uint8_t *at, const uint8_t *end, int64_t longest, Send *send
) except? NULL
cdef bint is_send(int64_t code) noexcept nogil
cdef Py_ssize_t unescape(Text text, uint8_t *to) noexcept nogil
cdef Py_ssize_t signed_values(Send *send, uint8_t *to, Py_ssize_t room) noexcept nogil
cdef bint is_same(Text one, Text other) noexcept nogil
cdef bint is_plain(Text text) noexcept nogil
cdef bint may_be_refused(const uint8_t *at, const uint8_t *end, dict unsupported) except *

cdef class SendAnswers:
    cdef bytes _msg_id
    cdef tuple _json
    cdef tuple _binary
    cdef int _language
    cdef int _version
    cdef uint8_t *_buffer
    cdef uint8_t *_to

    cdef void begin(self) noexcept
    cdef bytes taken(self)
    cdef bint add_stored(
        self, Send *send, int64_t physical_offset, int64_t queue_offset, Text unique_id
    ) except False
    cdef bint add_repeated(self, Send *send, bytes before, bytes after) except *
