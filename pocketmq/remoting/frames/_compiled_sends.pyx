# cython: language_level=3
"""The requests of ordinary sends, and of parents of them, decoded, and their answers encoded, by
compiled code.

Only requests as the known clients write them. Functions read between `at` and `end`, never past
`end`: if a text ends too early, or is not as expected, they return NULL, false, or a size below 0.
They raise no errors: everything else goes to `pocketmq.remoting.serving.request`, which also finds
out what may be wrong with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from pocketmq._big_endian cimport get32, put16, put32, put_bytes

cdef enum:
    CODE_SEND = 10
    CODE_SEND_V2 = 310
    CODE_PARENT = 666
    MOST_HEADER = 256 << 10  # bytes
    BINARY_FIXED = 21  # bytes of a binary header before its remark
    MOST_ANSWER = 1024
    SIGNED = 1 << 14  # the bits of Send.seen after the letters
    ACCESS_KEY = 1 << 15
    SECURITY_TOKEN = 1 << 16
    DISPATCH_CODE = 1 << 17

cdef bytes _hex = b"0123456789ABCDEF"
cdef const uint8_t *HEX = <const uint8_t *> PyBytes_AS_STRING(_hex)


cdef uint8_t *put_decimal(uint8_t *at, int64_t value) noexcept nogil:
    """Write a number as text; it must not be the minimum of its type."""
    cdef uint8_t digits[20]
    cdef int count = 0
    if value < 0:
        at[0] = c"-"
        at += 1
        value = -value
    while True:
        digits[count] = <uint8_t> (c"0" + value % 10)
        count += 1
        value //= 10
        if value == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


# --- texts -----------------------------------------------------------------------------------


cdef inline bint equal(Text text, const char *other, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, other, size) == 0


cdef bint number_of(Text text, int bits, int64_t *number) noexcept nogil:
    """Read a signed number of this many bits as it is usually written, without leading zeros."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.size
    cdef bint negative = False
    cdef int64_t value = 0
    if at < end and at[0] == c"-":
        negative = True
        at += 1
    if not 1 <= end - at <= 18 or (at[0] == c"0" and text.size > 1):
        return False
    while at < end:
        if not c"0" <= at[0] <= c"9":
            return False
        value = value * 10 + (at[0] - c"0")
        at += 1
    if bits == 32 and value > 0x7FFFFFFF:
        return False
    number[0] = -value if negative else value
    return True


cdef bint is_boolean(Text text) noexcept nogil:
    return equal(text, "false", 5) or equal(text, "true", 4)


cdef const uint8_t *json_text(
    const uint8_t *at, const uint8_t *end, Text *text, bint escapes
) noexcept nogil:
    """Read a JSON string; with `escapes` it may contain escapes, which `unescape` checks."""
    if at >= end or at[0] != c'"':
        return NULL
    at += 1
    text.at = at
    while at < end:
        if at[0] == c'"':
            text.size = at - text.at
            return at + 1
        if at[0] < 32:
            return NULL
        if at[0] == c"\\":
            if not escapes:
                return NULL
            at += 1
        at += 1
    return NULL


cdef const uint8_t *json_number(
    const uint8_t *at, const uint8_t *end, int64_t *number
) noexcept nogil:
    """Read a number of 32 bits; something has to follow it."""
    cdef Text text
    text.at = at
    while at < end and (c"0" <= at[0] <= c"9" or at[0] == c"-"):
        at += 1
    text.size = at - text.at
    if at >= end or not number_of(text, 32, number):
        return NULL
    return at


cdef inline int hex_digit(uint8_t digit) noexcept nogil:
    if c"0" <= digit <= c"9":
        return digit - c"0"
    if c"a" <= digit <= c"f":
        return digit - c"a" + 10
    if c"A" <= digit <= c"F":
        return digit - c"A" + 10
    return -1


cdef Py_ssize_t unescape(Text text, uint8_t *to) noexcept nogil:
    """Write the content of a JSON string, which is no longer than its text; return the size, or -1
    if a character outside of ASCII is escaped, or an escape is invalid."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.size
    cdef uint8_t *begin = to
    cdef uint8_t letter
    cdef int high, low
    while at < end:
        letter = at[0]
        at += 1
        if letter == c"\\":
            letter = at[0]  # a text does not end with the first half of an escape
            at += 1
            if letter == c"u":
                if end - at < 4 or at[0] != c"0" or at[1] != c"0":
                    return -1
                high = hex_digit(at[2])
                low = hex_digit(at[3])
                if not 0 <= high < 8 or low < 0:
                    return -1
                letter = <uint8_t> (high << 4 | low)
                at += 4
            elif letter == c"n":
                letter = 10
            elif letter == c"t":
                letter = 9
            elif letter == c"r":
                letter = 13
            elif letter == c"b":
                letter = 8
            elif letter == c"f":
                letter = 12
            elif letter != c'"' and letter != c"\\" and letter != c"/":
                return -1
        to[0] = letter
        to += 1
    return to - begin


cdef bint is_utf8(const uint8_t *at, Py_ssize_t size) except? False:
    cdef uint8_t seen = 0
    cdef Py_ssize_t each
    for each in range(size):
        seen |= at[each]
    if seen < 128:
        return True
    try:
        PyUnicode_DecodeUTF8(<const char *> at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


# --- requests --------------------------------------------------------------------------------


cdef uint8_t letter_of(Text name) noexcept nogil:
    """Return the letter that SEND_MESSAGE_V2 has for a field of SEND_MESSAGE; 0 for others."""
    if equal(name, "producerGroup", 13):
        return c"a"
    if equal(name, "topic", 5):
        return c"b"
    if equal(name, "defaultTopic", 12):
        return c"c"
    if equal(name, "defaultTopicQueueNums", 21):
        return c"d"
    if equal(name, "queueId", 7):
        return c"e"
    if equal(name, "sysFlag", 7):
        return c"f"
    if equal(name, "bornTimestamp", 13):
        return c"g"
    if equal(name, "flag", 4):
        return c"h"
    if equal(name, "properties", 10):
        return c"i"
    if equal(name, "reconsumeTimes", 14):
        return c"j"
    if equal(name, "unitMode", 8):
        return c"k"
    if equal(name, "maxReconsumeTimes", 17):
        return c"l"
    if equal(name, "batch", 5):
        return c"m"
    if equal(name, "bname", 5):
        return c"n"
    return 0


cdef bint take_field(Send *send, Text name, Text value) noexcept nogil:
    """Take an extField; false if it is unknown or unusual."""
    cdef uint8_t letter
    cdef int64_t number
    cdef uint32_t bit = 0
    if send.is_other and not send.is_parent:
        return True
    if equal(name, "Signature", 9):
        bit = SIGNED
        send.signature = value
    elif equal(name, "AccessKey", 9):
        bit = ACCESS_KEY
        send.access_key = value
    elif equal(name, "SecurityToken", 13):
        bit = SECURITY_TOKEN
    elif send.is_parent:
        bit = DISPATCH_CODE
        if not equal(name, "dispatchCode", 12) or not number_of(value, 32, &send.dispatch_code):
            return False
    if bit != SIGNED and send.known < MOST_FIELDS:
        send.fields[send.known].name = name
        send.fields[send.known].value = value
        send.known += 1
    if bit:
        if send.seen & bit:
            return False
        send.seen |= bit
        return True
    if send.code == CODE_SEND:
        letter = letter_of(name)
    else:
        letter = name.at[0] if name.size == 1 else 0
    if not c"a" <= letter <= c"n" or send.seen >> (letter - c"a") & 1:
        return False
    send.seen |= <uint32_t> 1 << (letter - c"a")
    if letter == c"b":
        send.topic = value
    elif letter == c"e":
        return number_of(value, 32, &send.queue_id)
    elif letter == c"f":
        return number_of(value, 32, &send.sys_flag)
    elif letter == c"g":
        return number_of(value, 64, &send.born_timestamp)
    elif letter == c"h":
        return number_of(value, 32, &send.flag)
    elif letter == c"i":
        send.properties = value
    elif letter == c"j":
        return number_of(value, 32, &send.reconsume_times)
    elif letter == c"d" or letter == c"l":
        return number_of(value, 32, &number)
    elif letter == c"k":
        return is_boolean(value)
    elif letter == c"m":
        return equal(value, "false", 5)
    return True


cdef bint is_send(int64_t code) noexcept nogil:
    return code == CODE_SEND_V2 or code == CODE_SEND


cdef inline void _set_kind(Send *send) noexcept nogil:
    send.is_other = not is_send(send.code)
    send.is_parent = send.code == CODE_PARENT


cdef inline bint is_whole(Send *send) noexcept nogil:
    """Whether the mandatory fields are set: b, e, f, g, h."""
    return send.is_other or send.seen & 0b11110010 == 0b11110010


cdef const uint8_t *json_fields(
    const uint8_t *at, const uint8_t *end, Send *send
) noexcept nogil:
    """Read the object of the extFields."""
    cdef Text name, value
    cdef bint escapes
    if at >= end or at[0] != c"{":
        return NULL
    while True:
        at = json_text(at + 1, end, &name, False)
        if at == NULL or at >= end or at[0] != c":":
            return NULL
        escapes = (
            (send.is_other and not send.is_parent)
            or equal(name, "i", 1)
            or equal(name, "properties", 10)
        )
        at = json_text(at + 1, end, &value, escapes)
        if at == NULL or at >= end or not take_field(send, name, value):
            return NULL
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL


cdef bint decode_json(const uint8_t *at, const uint8_t *end, Send *send) except? False:
    cdef const uint8_t *begin = at
    cdef Text name, value
    cdef int64_t number
    cdef uint32_t seen = 0
    cdef uint32_t bit
    if end - at < 12 or memcmp(at, <const char *> '{"code":', 8) != 0:
        return False
    at = json_number(at + 8, end, &send.code)
    if at == NULL:
        return False
    _set_kind(send)
    send.escaped = True
    while at[0] == c",":
        at = json_text(at + 1, end, &name, False)
        if at == NULL or at >= end or at[0] != c":":
            return False
        at += 1
        if equal(name, "extFields", 9):
            bit = 1
            at = json_fields(at, end, send)
        elif equal(name, "opaque", 6):
            bit = 2
            at = json_number(at, end, &send.opaque)
        elif equal(name, "flag", 4):
            bit = 4
            at = json_number(at, end, &number)
            if at == NULL or number != 0:
                return False
        elif equal(name, "version", 7):
            bit = 8
            at = json_number(at, end, &number)
        elif equal(name, "language", 8):
            bit = 16
            at = json_text(at, end, &value, False)
        elif equal(name, "serializeTypeCurrentRPC", 23):
            bit = 32
            at = json_text(at, end, &value, False)
        else:
            return False
        if at == NULL or at >= end or seen & bit:
            return False
        seen |= bit
    if at[0] != c"}" or at + 1 != end or not is_whole(send):
        return False
    return is_utf8(begin, end - begin)


cdef bint decode_binary(const uint8_t *at, const uint8_t *end, Send *send) except? False:
    cdef Text name, value
    cdef uint32_t size
    if end - at < BINARY_FIXED + 4:
        return False
    send.code = <int64_t> at[0] << 8 | at[1]
    _set_kind(send)
    send.opaque = <int64_t> <int> get32(at + 5)
    # Neither a flag nor a remark, and the entries end with the header.
    if get32(at + 9) or get32(at + 13) or get32(at + 17) != <uint32_t> (end - at - BINARY_FIXED):
        return False
    at += BINARY_FIXED
    send.escaped = False
    while at < end:
        if end - at < 6:
            return False
        name.size = <Py_ssize_t> at[0] << 8 | at[1]
        name.at = at + 2
        if name.size > end - at - 6:
            return False
        at += 2 + name.size
        size = get32(at)
        at += 4
        if size > <uint32_t> (end - at):
            return False
        value.at = at
        value.size = size
        at += size
        # An empty value counts as absent.
        if size and not (take_field(send, name, value) and is_utf8(value.at, size)):
            return False
    return is_whole(send)


cdef const uint8_t *decode(
    const uint8_t *at, const uint8_t *end, int64_t longest, Send *send
) except? NULL:
    """Decode the request that begins at `at`; return its end."""
    cdef uint32_t length, word
    cdef const uint8_t *head
    if end - at < 8:
        return NULL
    length = get32(at)
    word = get32(at + 4)
    if length > longest or length > end - at - 4 or length < 4:
        return NULL
    end = at + 4 + length
    at += 8
    head = at
    if word & 0xFFFFFF > <uint32_t> (end - at) or word & 0xFFFFFF > MOST_HEADER:
        return NULL
    at += word & 0xFFFFFF
    memset(send, 0, <uint8_t *> &send.fields - <uint8_t *> send)
    send.binary = word >> 24 == 1
    if send.binary:
        if not decode_binary(head, at, send):
            return NULL
    elif word >> 24 or not decode_json(head, at, send):
        return NULL
    send.body.at = at
    send.body.size = end - at
    return end


cdef inline int compare(Text one, Text other) noexcept nogil:
    cdef int order = memcmp(one.at, other.at, min(one.size, other.size))
    return order if order else (one.size > other.size) - (one.size < other.size)


cdef bint is_same(Text one, Text other) noexcept nogil:
    # The address of an empty text may be NULL, which memcmp does not allow.
    return one.size == other.size and (not one.size or memcmp(one.at, other.at, one.size) == 0)


cdef Py_ssize_t signed_values(Send *send, uint8_t *to, Py_ssize_t room) noexcept nogil:
    """Write what the signature of a request covers beside its body: the values of its extFields,
    in the order of their names. Return the size, or -1 if there is no room."""
    cdef uint8_t *begin = to
    cdef Py_ssize_t size
    cdef int each, place
    cdef Field field
    for each in range(1, send.known):
        field = send.fields[each]
        place = each
        while place and compare(field.name, send.fields[place - 1].name) < 0:
            send.fields[place] = send.fields[place - 1]
            place -= 1
        send.fields[place] = field
    for each in range(send.known):
        if room - (to - begin) < send.fields[each].value.size:
            return -1
        if send.escaped and send.fields[each].value.at == send.properties.at:
            size = unescape(send.properties, to)
            if size < 0:
                return -1
            to += size
        else:
            to = put_bytes(to, send.fields[each].value.at, send.fields[each].value.size)
    return to - begin


cdef bint is_plain(Text text) noexcept nogil:
    """Whether a JSON string is exactly this text."""
    cdef Py_ssize_t each
    for each in range(text.size):
        if not 32 <= text.at[each] < 127 or text.at[each] == c'"' or text.at[each] == c"\\":
            return False
    return True


cdef bint may_be_refused(const uint8_t *at, const uint8_t *end, dict unsupported) except *:
    """Whether a request that begins at `at` is worth decoding: it is a send, or of an unknown code
    that was refused. A binary header always is: skipping most of it costs little."""
    cdef int64_t code
    if end - at < 20 or memcmp(at + 8, <const char *> '{"code":', 8) != 0:
        return True
    if json_number(at + 16, end, &code) == NULL:
        return False
    return is_send(code) or code in unsupported


cdef class SendAnswers:
    """Answers to the sends of one read, encoded one after the other.

    `json` and `binary` are the answer to a stored message in its parts: those before, between and
    after message id, queue id, queue offset and transaction id, and in JSON the opaque.
    """

    def __cinit__(self):
        # As many answers to parents; what is never written takes no memory.
        self._buffer = <uint8_t *> PyMem_Malloc(2 * MOST_SENDS * MOST_ANSWER)
        if self._buffer == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._buffer)

    def __init__(
        self,
        *,
        bytes msg_id not None,
        tuple json not None,
        tuple binary not None,
        int language,
        int version,
    ):
        self._msg_id = msg_id
        self._json = json
        self._binary = binary
        self._language = language
        self._version = version
        self._to = self._buffer
        if len(json) != 6 or len(binary) != 5:
            raise ValueError("answers have six parts in JSON, five in binary headers")
        fixed = max(sum(map(len, json)), sum(map(len, binary)) + BINARY_FIXED + 28)
        if fixed + len(msg_id) + 16 + 11 + 20 + 11 + MOST_UNIQUE_ID > MOST_ANSWER:
            raise ValueError("the answers are too long")

    cdef void begin(self) noexcept:
        """Forget the answers encoded so far."""
        self._to = self._buffer

    cdef bytes taken(self):
        """Return the answers: at most `MOST_SENDS` since `begin`."""
        return PyBytes_FromStringAndSize(<char *> self._buffer, self._to - self._buffer)

    cdef bint add_stored(
        self, Send *send, int64_t physical_offset, int64_t queue_offset, Text unique_id
    ) except False:
        """Add the answer to a stored message."""
        cdef uint8_t *to = self._to
        cdef uint8_t *frame = to
        cdef uint8_t *length
        cdef tuple parts = self._binary if send.binary else self._json
        to += 8
        if send.binary:
            to = put16(to, 0)
            to[0] = <uint8_t> self._language
            to = put16(to + 1, <uint32_t> self._version)
            to = put32(to, <uint32_t> send.opaque)
            to = put32(to, 1)
            to = put32(to, 0) + 4
        to = _part(to, parts, 0)
        length = to
        to += 4 * send.binary
        to = put_bytes(
            to, <const uint8_t *> PyBytes_AS_STRING(self._msg_id), PyBytes_GET_SIZE(self._msg_id)
        )
        to = _put_hex(to, physical_offset)
        if send.binary:
            put32(length, <uint32_t> (to - length - 4))
        to = _part(to, parts, 1)
        length = to
        to = put_decimal(to + 4 * send.binary, send.queue_id)
        if send.binary:
            put32(length, <uint32_t> (to - length - 4))
        to = _part(to, parts, 2)
        length = to
        to = put_decimal(to + 4 * send.binary, queue_offset)
        if send.binary:
            put32(length, <uint32_t> (to - length - 4))
        to = _part(to, parts, 3)
        if send.binary:
            to = put32(to, <uint32_t> unique_id.size)
            to = put_bytes(to, unique_id.at, unique_id.size)
        else:
            to[0] = c'"'
            to = put_bytes(to + 1, unique_id.at, unique_id.size)
            to[0] = c'"'
            to += 1
        to = _part(to, parts, 4)
        if send.binary:
            put32(frame + 8 + 17, <uint32_t> (to - frame - 8 - BINARY_FIXED))
        else:
            to = _part(put_decimal(to, send.opaque), parts, 5)
        put32(frame, <uint32_t> (to - frame - 4))
        put32(frame + 4, <uint32_t> send.binary << 24 | <uint32_t> (to - frame - 8))
        self._to = to
        return True

    cdef bint add_repeated(self, Send *send, bytes before, bytes after) except *:
        """Add an answer that is `before` and `after` around the opaque; false if it is too long."""
        cdef uint8_t *to = self._to
        cdef uint8_t *frame = to
        if PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(after) + 8 + 11 > MOST_ANSWER:
            return False
        to += 8 * (not send.binary)
        to = put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
        if send.binary:
            to = put32(to, <uint32_t> send.opaque)
        else:
            to = put_decimal(to, send.opaque)
        to = put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(after), PyBytes_GET_SIZE(after))
        if not send.binary:
            put32(frame, <uint32_t> (to - frame - 4))
            put32(frame + 4, <uint32_t> (to - frame - 8))
        self._to = to
        return True


cdef inline uint8_t *_part(uint8_t *to, tuple parts, Py_ssize_t index) except NULL:
    cdef bytes part = parts[index]
    return put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))


cdef inline uint8_t *_put_hex(uint8_t *to, int64_t value) noexcept nogil:
    cdef int each
    for each in range(16):
        to[each] = HEX[<uint64_t> value >> (60 - 4 * each) & 15]
    return to + 16
