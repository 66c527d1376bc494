# cython: language_level=3
"""The ordinary sends at the beginning of a read, decoded, encoded as records and answered at once.

`SendProcessor.send` does the same for any send. This module takes only requests as the known clients
write them, to topics that passed the checks before. Its run ends before the first request that is
different in anything: a header in another spelling, a property that needs work, a queue that needs a
file. That one is executed in Python, which also finds out what may be wrong with it. So there are no
errors here.

Functions read between `at` and `end`, and never beyond: where a text ends too early, or is not as
expected, they return NULL, false, or a size below 0.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from pocketmq._big_endian cimport get32, put16, put32, put64

from pocketmq.store.writer import EncodedRun

cdef enum:
    MOST = 64  # requests of one run
    MOST_UNIQUE_ID = 255
    MOST_PROPERTIES = 32767
    HEAD_SIZE = 88  # of a record with two IPv4 addresses, up to and including the body length
    CODE_SEND = 10
    CODE_SEND_V2 = 310
    UNIQUE_MARK_SIZE = 9
    BINARY_FIXED = 21  # bytes of a binary header before its remark
    MOST_ANSWER = 1024

cdef bytes _unique_mark = b"UNIQ_KEY\x01"
cdef const uint8_t *UNIQUE_MARK = <const uint8_t *> PyBytes_AS_STRING(_unique_mark)

cdef bytes _hex = b"0123456789ABCDEF"
cdef const uint8_t *HEX = <const uint8_t *> PyBytes_AS_STRING(_hex)

cdef struct Text:
    const uint8_t *at
    Py_ssize_t size

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
    bint is_other  # no send: nothing is taken of its fields
    uint32_t seen  # extFields, a bit for each letter of SEND_MESSAGE_V2

cdef struct Queue:
    # Of one topic and queue id in this run.
    Text topic
    int64_t queue_id
    int64_t first_offset
    int64_t next_offset
    int64_t room
    int64_t target_flag
    uint32_t magic
    Text topic_field
    Py_ssize_t count
    int64_t size

cdef struct Row:
    Py_ssize_t queue
    int64_t physical_offset
    int64_t size
    int64_t tags_code


cdef inline uint8_t *put_bytes(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t *put_decimal(uint8_t *at, int64_t value) noexcept nogil:
    """Write a number as text; it is not the least one of its type."""
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
    """Read a signed number of so many bits as it is usually written, without a needless zero."""
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
    """Read a JSON string; with `escapes` it may hold some, which `unescape` looks at."""
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
    """Write what a JSON string stands for, which is no longer than its text; return the size, or -1
    where a character outside of ASCII is escaped or an escape is none."""
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
    """Take an extField; false if it is not one that is known, and as usual."""
    cdef uint8_t letter
    cdef int64_t number
    if send.is_other:
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


cdef inline bint is_whole(Send *send) noexcept nogil:
    """Whether the mandatory fields were there: b, e, f, g, h."""
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
        escapes = send.is_other or equal(name, "i", 1) or equal(name, "properties", 10)
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
    send.is_other = send.code != CODE_SEND_V2 and send.code != CODE_SEND
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
    send.is_other = send.code != CODE_SEND_V2 and send.code != CODE_SEND
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
        # An empty value is none at all.
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
    if word & 0xFFFFFF > <uint32_t> (end - at):
        return NULL
    at += word & 0xFFFFFF
    memset(send, 0, sizeof(Send))
    send.binary = word >> 24 == 1
    if send.binary:
        if not decode_binary(head, at, send):
            return NULL
    elif word >> 24 or not decode_json(head, at, send):
        return NULL
    send.body.at = at
    send.body.size = end - at
    return end


cdef Py_ssize_t find_unique_id(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Return where the last UNIQ_KEY of properties begins, -1 without one."""
    cdef Py_ssize_t begin = size - UNIQUE_MARK_SIZE
    while begin >= 0:
        if at[begin] == c"U" and memcmp(at + begin, UNIQUE_MARK, UNIQUE_MARK_SIZE) == 0:
            return begin
        begin -= 1
    return -1


cdef bint is_plain(Text text) noexcept nogil:
    """Whether a JSON string has this text as it is."""
    cdef Py_ssize_t each
    for each in range(text.size):
        if not 32 <= text.at[each] < 127 or text.at[each] == c'"' or text.at[each] == c"\\":
            return False
    return True


cdef class SendRun:
    """Encodes runs of sends for one broker.

    `examine` is given the properties of a message and returns its tags code, or None if it leaves
    the straight line. Of the texts that are passed, `json` and `binary` are the answers in their
    parts: what stands before, between and behind message id, queue id, queue offset and transaction
    id, and in JSON the opaque.
    """

    cdef dict _targets
    cdef object _examine
    cdef object _crc
    cdef bytes _suffix
    cdef bytes _store_host
    cdef bytes _msg_id
    cdef tuple _json
    cdef tuple _binary
    cdef int _language
    cdef int _version
    cdef int64_t _special
    cdef int64_t _kept
    cdef bytes _before
    cdef bytes _behind
    cdef int64_t _tags_code
    cdef uint8_t *_answers

    def __cinit__(self):
        self._answers = <uint8_t *> PyMem_Malloc(MOST * MOST_ANSWER)
        if self._answers == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._answers)

    def __init__(
        self,
        dict targets not None,
        examine,
        crc,
        *,
        bytes suffix not None,
        bytes store_host not None,
        bytes msg_id not None,
        tuple json not None,
        tuple binary not None,
        int language,
        int version,
        int64_t special,
        int64_t kept,
    ):
        self._targets = targets
        self._examine = examine
        self._crc = crc
        self._suffix = suffix
        self._store_host = store_host
        self._msg_id = msg_id
        self._json = json
        self._binary = binary
        self._language = language
        self._version = version
        self._special = special
        self._kept = kept
        self._before = b"?"  # what properties do not begin with before a unique id
        self._behind = b""
        if len(store_host) != 8:
            raise ValueError("the broker has no IPv4 address")
        if len(json) != 6 or len(binary) != 5:
            raise ValueError("answers have six parts in JSON, five in binary headers")
        fixed = max(sum(map(len, json)), sum(map(len, binary)) + BINARY_FIXED + 28)
        if fixed + len(msg_id) + 16 + 11 + 20 + 11 + MOST_UNIQUE_ID > MOST_ANSWER:
            raise ValueError("the answers are too long")

    def encode(
        self,
        bytes data not None,
        Py_ssize_t start,
        int most,
        int64_t longest,
        bytes born_host not None,
        dict by_topic not None,
        bytearray buffer not None,
        Py_ssize_t at,
        Py_ssize_t room,
        int64_t physical_offset,
        int64_t timestamp,
        int64_t most_body,
    ):
        """Write the records of the sends in `data[start:]` into `buffer[at : at + room]`.

        Ends behind `most` of them, or before a frame that is longer than `longest` bytes, that has
        another request code than the first one, or that has to be executed in Python. Returns None
        if that is the first one. What is known of a queue's topic is its target.
        """
        cdef const uint8_t *begin = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = begin + PyBytes_GET_SIZE(data)
        cdef const uint8_t *here = begin + start
        cdef const uint8_t *behind
        cdef uint8_t *records
        cdef uint8_t *to
        cdef uint8_t *answer = self._answers
        cdef Send send
        cdef Queue queues[MOST]
        cdef Row rows[MOST]
        cdef Text unique_id
        cdef Py_ssize_t known = 0, count = 0, used = 0, index = 0, size, properties
        cdef Py_ssize_t suffix = PyBytes_GET_SIZE(self._suffix)
        cdef int64_t tags_code = 0, code = 0
        cdef uint32_t crc
        cdef list opaques = []
        cdef list found = []
        if not 0 <= start <= PyBytes_GET_SIZE(data) or at < 0 or room < 0:
            raise ValueError("it begins outside of what was read, or of the buffer")
        if room > PyByteArray_GET_SIZE(buffer) - at:
            raise ValueError("the buffer has not so much room")
        if PyBytes_GET_SIZE(born_host) != 8:
            return None
        if most > MOST:
            most = MOST
        records = <uint8_t *> PyByteArray_AS_STRING(buffer) + at
        while count < most:
            behind = decode(here, end, longest, &send)
            if behind == NULL or send.is_other or not 1 <= send.body.size <= most_body:
                break
            if count and send.code != code:
                break
            code = send.code
            if send.sys_flag & self._special or send.queue_id < 0 or not send.properties.size:
                break
            index = self._queue_of(&send, by_topic, queues, known, index, found)
            if index < 0:
                break
            known = len(found)
            if queues[index].next_offset >= queues[index].room:
                break
            size = HEAD_SIZE + queues[index].topic_field.size + 2 + send.body.size
            if room - used < size + send.properties.size + 1 + suffix:
                break
            to = records + used + size
            if send.escaped:
                properties = unescape(send.properties, to)
            else:
                memcpy(to, send.properties.at, send.properties.size)
                properties = send.properties.size
            if properties < 0 or not self._judge(to, properties, &unique_id, &tags_code):
                break
            if to[properties - 1] != 2:
                to[properties] = 2
                properties += 1
            memcpy(to + properties, PyBytes_AS_STRING(self._suffix), suffix)
            properties += suffix
            if properties > MOST_PROPERTIES:
                break
            size += properties
            crc = self._crc(
                PyMemoryView_FromMemory(<char *> send.body.at, send.body.size, PyBUF_READ)
            )
            to = records + used
            to = put32(to, <uint32_t> size)
            to = put32(to, queues[index].magic)
            to = put32(to, crc & 0x7FFFFFFF)
            to = put32(to, <uint32_t> send.queue_id)
            to = put32(to, <uint32_t> send.flag)
            to = put64(to, queues[index].next_offset)
            to = put64(to, physical_offset + used)
            to = put32(to, <uint32_t> (send.sys_flag & self._kept | queues[index].target_flag))
            to = put64(to, send.born_timestamp)
            to = put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(born_host), 8)
            to = put64(to, timestamp)
            to = put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(self._store_host), 8)
            to = put32(to, <uint32_t> send.reconsume_times)
            to = put64(to, 0)
            to = put32(to, <uint32_t> send.body.size)
            to = put_bytes(to, send.body.at, send.body.size)
            to = put_bytes(to, queues[index].topic_field.at, queues[index].topic_field.size)
            to = put16(to, <uint32_t> properties)
            answer = self._answer(
                answer, &send, physical_offset + used, queues[index].next_offset, unique_id
            )
            opaques.append(send.opaque)
            rows[count] = Row(index, physical_offset + used, size, tags_code)
            queues[index].next_offset += 1
            queues[index].count += 1
            queues[index].size += size
            used += size
            count += 1
            here = behind
        if not count:
            return None
        return EncodedRun(
            here - begin,
            code,
            opaques,
            PyBytes_FromStringAndSize(<char *> self._answers, answer - self._answers),
            used,
            _by_queue(queues, found, rows, count),
        )

    def refuse(
        self,
        bytes data not None,
        Py_ssize_t start,
        int most,
        int64_t longest,
        dict refusals not None,
        dict unsupported not None,
    ):
        """Answer the requests in `data[start:]` that are refused as others before: sends with the
        `refusals` by topic and queue id, those of unknown codes with the `unsupported` by code.

        Ends where `encode` would, and before one with another answer code than the first one's.
        Returns where that is, the answers, the request code, the number of requests, and the answer
        code; None if the first one is not refused.
        """
        cdef const uint8_t *begin = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = begin + PyBytes_GET_SIZE(data)
        cdef const uint8_t *here = begin + start
        cdef const uint8_t *behind
        cdef uint8_t *to = self._answers
        cdef uint8_t *frame
        cdef Send send, last
        cdef int64_t answer_code = 0
        cdef Py_ssize_t count = 0
        cdef bytes before = b"", after = b""
        if not 0 <= start <= PyBytes_GET_SIZE(data):
            raise ValueError("it begins outside of what was read")
        if most > MOST:
            most = MOST
        memset(&last, 0, sizeof(Send))
        if not _may_be_refused(here, end, unsupported):
            return None
        while count < most:
            behind = decode(here, end, longest, &send)
            if behind == NULL or (count and send.code != last.code):
                break
            if not (send.is_other or send.body.size):
                break
            if not count or not _is_like(&send, &last):
                if send.is_other:
                    answer = unsupported.get(send.code)
                else:
                    topic = PyUnicode_DecodeUTF8(
                        <const char *> send.topic.at, send.topic.size, NULL
                    )
                    answer = refusals.get((topic, send.queue_id))
                if answer is None or (count and answer.code != answer_code):
                    break
                answer_code = answer.code
                before, after = answer.parts(<int> send.binary)
                if len(before) + len(after) + 8 + 11 > MOST_ANSWER:
                    break
            frame = to
            to += 8 * (not send.binary)
            to = put_bytes(
                to, <const uint8_t *> PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before)
            )
            if send.binary:
                to = put32(to, <uint32_t> send.opaque)
            else:
                to = put_decimal(to, send.opaque)
            to = put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(after), PyBytes_GET_SIZE(after))
            if not send.binary:
                put32(frame, <uint32_t> (to - frame - 4))
                put32(frame + 4, <uint32_t> (to - frame - 8))
            last = send
            count += 1
            here = behind
        if not count:
            return None
        answers = PyBytes_FromStringAndSize(<char *> self._answers, to - self._answers)
        return here - begin, answers, last.code, count, answer_code

    cdef Py_ssize_t _queue_of(
        self, Send *send, dict by_topic, Queue *queues, Py_ssize_t known, Py_ssize_t last, list found
    ) except -2:
        """Return the index of the send's queue; -1 if its topic or queue has to be looked at."""
        cdef Py_ssize_t each
        cdef Queue *queue
        if last < known and _is_of(&queues[last], send):
            return last
        for each in range(known):
            if _is_of(&queues[each], send):
                return each
        topic = PyUnicode_DecodeUTF8(<const char *> send.topic.at, send.topic.size, NULL)
        target = self._targets.get(topic)
        if target is None or send.queue_id >= target.queue_limit:
            return -1
        of_topic = by_topic.get(topic)
        into = None if of_topic is None else of_topic.get(send.queue_id)
        if into is None or into.delayed:
            return -1
        magic, field, _ = into.topic_field
        queue = &queues[known]
        memset(queue, 0, sizeof(Queue))
        queue.topic = send.topic
        queue.queue_id = send.queue_id
        queue.first_offset = queue.next_offset = into.next_offset
        queue.room = into.room
        queue.target_flag = target.sys_flag
        if queue.target_flag & self._special:
            return -1
        queue.magic = magic
        queue.topic_field.at = <const uint8_t *> PyBytes_AS_STRING(<bytes?> field)
        queue.topic_field.size = len(field)
        found.append((into, target, field))  # which keeps the bytes of the field
        return known

    cdef bint _judge(
        self, const uint8_t *at, Py_ssize_t size, Text *unique_id, int64_t *tags_code
    ) except *:
        """Tell whether a message stays on the line, with its unique id and its tags code. What
        stands around the unique id is mostly that of the message before."""
        cdef Py_ssize_t before = find_unique_id(at, size)
        cdef const uint8_t *end = at + size
        cdef const uint8_t *behind
        if before < 0 or (before and at[before - 1] != 2):
            return False
        unique_id.at = at + before + UNIQUE_MARK_SIZE
        behind = unique_id.at
        while behind < end and behind[0] != 2:
            behind += 1
        unique_id.size = behind - unique_id.at
        if not 1 <= unique_id.size <= MOST_UNIQUE_ID or not is_plain(unique_id[0]):
            return False
        if behind < end:
            behind += 1
        if (
            before != PyBytes_GET_SIZE(self._before)
            or end - behind != PyBytes_GET_SIZE(self._behind)
            or memcmp(at, PyBytes_AS_STRING(self._before), before) != 0
            or memcmp(behind, PyBytes_AS_STRING(self._behind), end - behind) != 0
        ):
            code = self._examine(PyUnicode_DecodeUTF8(<const char *> at, size, NULL))
            if code is None:
                return False
            self._tags_code = code
            self._before = PyBytes_FromStringAndSize(<const char *> at, before)
            self._behind = PyBytes_FromStringAndSize(<const char *> behind, end - behind)
        tags_code[0] = self._tags_code
        return True

    cdef uint8_t *_answer(
        self, uint8_t *to, Send *send, int64_t physical_offset, int64_t queue_offset, Text unique_id
    ) except NULL:
        """Write the answer to a stored message."""
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
        return to


cdef bint _may_be_refused(const uint8_t *at, const uint8_t *end, dict unsupported) except *:
    """Whether a request that begins at `at` is worth decoding: it is a send, or of an unknown code
    that was refused. A binary header is: to skip most of it costs little."""
    cdef int64_t code
    if end - at < 20 or memcmp(at + 8, <const char *> '{"code":', 8) != 0:
        return True
    if json_number(at + 16, end, &code) == NULL:
        return False
    return code == CODE_SEND_V2 or code == CODE_SEND or code in unsupported


cdef inline bint _is_like(Send *one, Send *other) noexcept nogil:
    """Whether the same answer refuses both."""
    return (
        one.binary == other.binary
        and one.queue_id == other.queue_id
        and one.topic.size == other.topic.size
        # A topic that was not read yet is nowhere, which memcmp may not be given.
        and (not one.topic.size or memcmp(one.topic.at, other.topic.at, one.topic.size) == 0)
    )


cdef inline bint _is_of(Queue *queue, Send *send) noexcept nogil:
    return (
        queue.queue_id == send.queue_id
        and queue.topic.size == send.topic.size
        and memcmp(queue.topic.at, send.topic.at, send.topic.size) == 0
    )


cdef inline uint8_t *_part(uint8_t *to, tuple parts, Py_ssize_t index) except NULL:
    cdef bytes part = parts[index]
    return put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))


cdef inline uint8_t *_put_hex(uint8_t *to, int64_t value) noexcept nogil:
    cdef int each
    for each in range(16):
        to[each] = HEX[<uint64_t> value >> (60 - 4 * each) & 15]
    return to + 16


cdef list _by_queue(Queue *queues, list found, Row *rows, Py_ssize_t count):
    """Return queue, target, first queue offset, entries, and bytes of the records, of each."""
    cdef list result = []
    cdef Py_ssize_t index, each
    cdef uint8_t *to
    cdef bytes entries
    for index, (queue, target, _) in enumerate(found):
        if not queues[index].count:
            continue
        entries = PyBytes_FromStringAndSize(NULL, queues[index].count * 20)
        to = <uint8_t *> PyBytes_AS_STRING(entries)
        for each in range(count):
            if rows[each].queue == index:
                to = put64(to, rows[each].physical_offset)
                to = put32(to, <uint32_t> rows[each].size)
                to = put64(to, rows[each].tags_code)
        result.append((queue, target, queues[index].first_offset, entries, queues[index].size))
    return result
