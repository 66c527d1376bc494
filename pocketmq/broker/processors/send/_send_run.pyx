# cython: language_level=3
"""The ordinary sends at the beginning of a read, and the parents of such sends, stored and answered
at once.

`SendProcessor.send` and `BatchProcessor` do the same for any send. This module executes only
requests in the form that the known clients write (`_compiled_sends` decodes them and encodes their
answers), to topics that passed the checks before. A run ends before the first request that differs:
a header in another form, a property that needs work, a queue that needs a file. That request is
executed in Python, which also reports its errors, so this module has none. A parent is executed
here only with all of its children.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memset

from pocketmq._big_endian cimport put16, put32, put_bytes
from pocketmq.remoting.frames._compiled_sends cimport (
    MOST_SENDS, MOST_UNIQUE_ID, Send, SendAnswers, Text, decode, is_plain, is_same, is_send,
    may_be_refused, signed_values, unescape,
)
from pocketmq.store.encoding._record cimport (
    ENTRY_SIZE, HEAD_SIZE, HOST_SIZE, MOST_PROPERTIES, SEPARATOR, put_entry, put_head,
)

from pocketmq.store.writer import EncodedRun

cdef enum:
    UNIQUE_MARK_SIZE = 9
    MOST_QUEUES = 256  # of one run
    MOST_HEADERS = 4 << 20  # bytes, of the children of one parent
    MOST_VALUES = 64 << 10  # bytes, of the extFields of a signed request

cdef bytes _unique_mark = b"UNIQ_KEY\x01"
cdef const uint8_t *UNIQUE_MARK = <const uint8_t *> PyBytes_AS_STRING(_unique_mark)

cdef struct Queue:
    # The sends of this run with one topic and queue id.
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


cdef Py_ssize_t find_unique_id(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Return the position of the last UNIQ_KEY in properties; -1 if there is none."""
    cdef Py_ssize_t begin = size - UNIQUE_MARK_SIZE
    while begin >= 0:
        if at[begin] == c"U" and memcmp(at + begin, UNIQUE_MARK, UNIQUE_MARK_SIZE) == 0:
            return begin
        begin -= 1
    return -1


cdef class SendRun:
    """Encodes runs of sends for one broker.

    `examine` takes the properties of a message and returns its tags code, or None if it needs the
    slow path. `parent` is the answer to a parent of the Batch-Protocol without its body, and
    `most_children` the most children of one.
    """

    cdef dict _targets
    cdef object _examine
    cdef object _crc
    cdef SendAnswers _answers
    cdef object _parent
    cdef Py_ssize_t _most_children
    cdef bytes _suffix
    cdef bytes _store_host
    cdef int64_t _special
    cdef int64_t _kept
    cdef bytes _before
    cdef bytes _after
    cdef int64_t _tags_code
    # The run that is being encoded:
    cdef Queue *_queues
    cdef Row *_rows
    cdef uint8_t *_values
    cdef object _guard
    cdef str _source_ip
    cdef object _signer  # of the last request
    cdef Text _access_key  # of that signer
    cdef object _permitted  # the signer who may send to this topic
    cdef Text _permitted_topic
    cdef list _found  # for each queue, what Python has of it
    cdef list _opaques
    cdef dict _by_topic
    cdef const uint8_t *_born_host
    cdef uint8_t *_records
    cdef Py_ssize_t _room
    cdef int64_t _physical_offset
    cdef int64_t _timestamp
    cdef int64_t _most_body
    cdef int64_t _code
    cdef Py_ssize_t _count
    cdef Py_ssize_t _used  # bytes of the records
    cdef Py_ssize_t _last  # the queue of the last send

    def __cinit__(self):
        self._queues = <Queue *> PyMem_Malloc(MOST_QUEUES * sizeof(Queue))
        self._rows = <Row *> PyMem_Malloc(MOST_SENDS * sizeof(Row))
        self._values = <uint8_t *> PyMem_Malloc(MOST_VALUES)
        if self._queues == NULL or self._rows == NULL or self._values == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._queues)
        PyMem_Free(self._rows)
        PyMem_Free(self._values)

    def __init__(
        self,
        dict targets not None,
        examine,
        crc,
        SendAnswers answers not None,
        parent,
        *,
        int most_children,
        bytes suffix not None,
        bytes store_host not None,
        int64_t special,
        int64_t kept,
    ):
        self._targets = targets
        self._examine = examine
        self._crc = crc
        self._answers = answers
        self._parent = parent
        self._most_children = min(most_children, MOST_SENDS)
        self._suffix = suffix
        self._store_host = store_host
        self._special = special
        self._kept = kept
        self._before = b"?"  # never matches the properties before a unique id
        self._after = b""
        if len(store_host) != HOST_SIZE:
            raise ValueError("the broker has no IPv4 address")

    def encode(
        self,
        data not None,
        Py_ssize_t start,
        int most,
        int64_t longest,
        guard,
        str source_ip not None,
        bytes born_host not None,
        dict by_topic not None,
        bytearray buffer not None,
        Py_ssize_t at,
        Py_ssize_t room,
        int64_t physical_offset,
        int64_t timestamp,
        int64_t most_body,
    ):
        """Write the records of the sends in `data[start:]`, by themselves or in parents, into
        `buffer[at : at + room]`.

        Stop after `most` sends, or with the parent that has the last of them, or before a frame
        that is longer than `longest` bytes, has sends of another request code than the first one,
        or has to be executed in Python. Return None if that is the first one. With a `guard`, requests have to be signed
        by users who may send from `source_ip`; others are for Python, which refuses them.
        """
        cdef Py_buffer read
        if at < 0 or room < 0:
            raise ValueError("it begins outside of the buffer")
        if room > PyByteArray_GET_SIZE(buffer) - at:
            raise ValueError("the buffer has not so much room")
        if PyBytes_GET_SIZE(born_host) != HOST_SIZE:
            return None
        self._answers.begin()
        self._guard = guard
        self._source_ip = source_ip
        self._found = []
        self._opaques = []
        self._by_topic = by_topic
        self._born_host = <const uint8_t *> PyBytes_AS_STRING(born_host)
        self._records = <uint8_t *> PyByteArray_AS_STRING(buffer) + at
        self._room = room
        self._physical_offset = physical_offset
        self._timestamp = timestamp
        self._most_body = most_body
        self._count = self._used = self._last = 0
        PyObject_GetBuffer(data, &read, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= read.len:
                raise ValueError("it begins outside of what was read")
            return self._encode(
                <const uint8_t *> read.buf, start, read.len, min(most, MOST_SENDS), longest
            )
        finally:
            PyBuffer_Release(&read)
            self._found = self._opaques = self._guard = self._signer = self._permitted = None

    cdef _encode(
        self, const uint8_t *data, Py_ssize_t start, Py_ssize_t size, int most, int64_t longest
    ):
        cdef const uint8_t *here = data + start
        cdef const uint8_t *after
        cdef Send send
        cdef list parents = []
        while self._count < most:
            after = decode(here, data + size, longest, &send)
            if after == NULL:
                break
            if send.is_parent:
                children = self._add_parent(&send)
                if children is None:
                    break
                parents.append((send.opaque, children))
            elif not self._is_allowed(&send, None) or not self._add(&send):
                break
            else:
                self._opaques.append(send.opaque)
            here = after
        if not self._count:
            return None
        return EncodedRun(
            here - data,
            self._code,
            self._count,
            self._opaques,
            parents,
            self._answers.taken(),
            self._used,
            _by_queue(self._queues, self._found, self._rows, self._count),
            self._signer,
        )

    cdef list _add_parent(self, Send *parent):
        """Add the children, and the answer to the parent. Return the opaques of the children, which
        ascend; None if the parent has to be executed in Python. Nothing is added then."""
        cdef const uint8_t *end = parent.body.at + parent.body.size
        cdef const uint8_t *here = parent.body.at
        cdef const uint8_t *after
        cdef uint8_t *answer = self._answers._to
        cdef Py_ssize_t count = self._count, used = self._used, known = len(self._found)
        cdef Py_ssize_t heads = 0
        cdef int64_t last = INT64_MIN
        cdef Send child
        cdef list opaques = []
        cdef bytes before, behind
        if not is_send(parent.dispatch_code) or here == end or not self._is_signed(parent, None):
            return None
        signer = self._signer
        before, behind = self._parent.parts(<int> parent.binary)
        self._answers.add_repeated(parent, before, behind)
        while here < end and self._count - count < self._most_children:
            after = decode(here, end, end - here, &child)
            if after == NULL or child.opaque <= last:
                break
            heads += child.body.at - here
            if heads > MOST_HEADERS or self._count == MOST_SENDS:
                break
            if not self._is_allowed(&child, signer) or not self._add(&child):
                break
            last = child.opaque
            opaques.append(last)
            here = after
        if here == end:
            put32(answer, <uint32_t> (self._answers._to - answer - 4))
            return opaques
        while self._count > count:
            self._count -= 1
            self._queues[self._rows[self._count].queue].next_offset -= 1
            self._queues[self._rows[self._count].queue].count -= 1
            self._queues[self._rows[self._count].queue].size -= self._rows[self._count].size
        del self._found[known:]
        self._used = used
        self._answers._to = answer
        return None

    cdef bint _is_signed(self, Send *request, parent) except *:
        """Tell whether a user has signed the request, who is the signer from now on; a child
        without a user is of its parent's, the signer `parent`."""
        cdef Py_ssize_t size
        if self._guard is None:
            return True
        if not request.access_key.size:
            self._signer = parent
            self._access_key.size = 0
            return parent is not None
        if self._signer is None or not is_same(self._access_key, request.access_key):
            self._signer = self._guard.signer(
                PyUnicode_DecodeUTF8(
                    <const char *> request.access_key.at, request.access_key.size, NULL
                )
            )
            if self._signer is None:
                return False
            self._access_key = request.access_key
        size = signed_values(request, self._values, MOST_VALUES)
        return size >= 0 and self._signer.has_signed(
            PyBytes_FromStringAndSize(
                <const char *> request.signature.at, request.signature.size
            ),
            PyMemoryView_FromMemory(<char *> self._values, size, PyBUF_READ),
            PyMemoryView_FromMemory(<char *> request.body.at, request.body.size, PyBUF_READ),
        )

    cdef bint _is_allowed(self, Send *send, parent) except *:
        """Tell whether a user who may send to the topic has signed the send, or its parent."""
        if self._guard is None:
            return True
        if send.is_other or not self._is_signed(send, parent):
            return False
        if self._permitted is not self._signer or not is_same(self._permitted_topic, send.topic):
            topic = PyUnicode_DecodeUTF8(<const char *> send.topic.at, send.topic.size, NULL)
            if not self._signer.may_send(topic, self._source_ip):
                return False
            self._permitted = self._signer
            self._permitted_topic = send.topic
        return True

    cdef bint _add(self, Send *send) except *:
        """Add a message, and its answer; false if it has to be executed in Python."""
        cdef Queue *queue
        cdef uint8_t *to
        cdef Text unique_id
        cdef Py_ssize_t index, size, properties
        cdef Py_ssize_t suffix = PyBytes_GET_SIZE(self._suffix)
        cdef int64_t tags_code = 0, physical_offset = self._physical_offset + self._used
        cdef uint32_t crc
        if send.is_other or not 1 <= send.body.size <= self._most_body:
            return False
        if self._count and send.code != self._code:
            return False
        if send.sys_flag & self._special or send.queue_id < 0 or not send.properties.size:
            return False
        index = self._queue_of(send)
        if index < 0:
            return False
        self._last = index
        queue = &self._queues[index]
        if queue.next_offset >= queue.room:
            return False
        size = HEAD_SIZE + queue.topic_field.size + 2 + send.body.size
        if self._room - self._used < size + send.properties.size + 1 + suffix:
            return False
        to = self._records + self._used + size
        if send.escaped:
            properties = unescape(send.properties, to)
        else:
            memcpy(to, send.properties.at, send.properties.size)
            properties = send.properties.size
        if properties < 0 or memchr(to, 0, properties) != NULL:
            return False
        if not self._judge(to, properties, &unique_id, &tags_code):
            return False
        if to[properties - 1] != SEPARATOR:
            to[properties] = SEPARATOR
            properties += 1
        memcpy(to + properties, PyBytes_AS_STRING(self._suffix), suffix)
        properties += suffix
        if properties > MOST_PROPERTIES:
            return False
        size += properties
        crc = self._crc(PyMemoryView_FromMemory(<char *> send.body.at, send.body.size, PyBUF_READ))
        to = put_head(
            self._records + self._used, size, queue.magic, crc, send.queue_id, send.flag,
            queue.next_offset, physical_offset, send.sys_flag & self._kept | queue.target_flag,
            send.born_timestamp, self._born_host, self._timestamp,
            <const uint8_t *> PyBytes_AS_STRING(self._store_host), send.reconsume_times,
            send.body.size,
        )
        to = put_bytes(to, send.body.at, send.body.size)
        to = put_bytes(to, queue.topic_field.at, queue.topic_field.size)
        put16(to, <uint32_t> properties)
        self._answers.add_stored(send, physical_offset, queue.next_offset, unique_id)
        self._rows[self._count] = Row(index, physical_offset, size, tags_code)
        queue.next_offset += 1
        queue.count += 1
        queue.size += size
        self._code = send.code
        self._used += size
        self._count += 1
        return True

    def refuse(
        self,
        data not None,
        Py_ssize_t start,
        int most,
        int64_t longest,
        dict refusals not None,
        dict unsupported not None,
    ):
        """Answer the requests in `data[start:]` that were refused before: sends with the `refusals`
        by topic and queue id, requests with unknown codes with the `unsupported` by code.

        Stop where `encode` would, and before a request with another answer code than the first one.
        Return the position after the last request, the answers, the request code, the number of
        requests, and the answer code; None if the first request is not refused.
        """
        cdef Py_buffer read
        PyObject_GetBuffer(data, &read, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= read.len:
                raise ValueError("it begins outside of what was read")
            return self._refuse(
                <const uint8_t *> read.buf, start, read.len, min(most, MOST_SENDS), longest,
                refusals, unsupported,
            )
        finally:
            PyBuffer_Release(&read)

    cdef _refuse(
        self,
        const uint8_t *data,
        Py_ssize_t start,
        Py_ssize_t size,
        int most,
        int64_t longest,
        dict refusals,
        dict unsupported,
    ):
        cdef const uint8_t *here = data + start
        cdef const uint8_t *after
        cdef Send send, last
        cdef int64_t answer_code = 0
        cdef Py_ssize_t count = 0
        cdef bytes head = b"", tail = b""
        memset(&last, 0, sizeof(Send))
        if not may_be_refused(here, data + size, unsupported):
            return None
        self._answers.begin()
        while count < most:
            after = decode(here, data + size, longest, &send)
            if after == NULL or (count and send.code != last.code):
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
                head, tail = answer.parts(<int> send.binary)
            if not self._answers.add_repeated(&send, head, tail):
                break
            last = send
            count += 1
            here = after
        if not count:
            return None
        return here - data, self._answers.taken(), last.code, count, answer_code

    cdef Py_ssize_t _queue_of(self, Send *send) except -2:
        """Return the index of the send's queue; -1 if it has to be executed in Python."""
        cdef Py_ssize_t each, known = len(self._found)
        cdef Queue *queue
        if self._last < known and _is_of(&self._queues[self._last], send):
            return self._last
        for each in range(known):
            if _is_of(&self._queues[each], send):
                return each
        if known == MOST_QUEUES:
            return -1
        topic = PyUnicode_DecodeUTF8(<const char *> send.topic.at, send.topic.size, NULL)
        target = self._targets.get(topic)
        if target is None or send.queue_id >= target.queue_limit:
            return -1
        of_topic = self._by_topic.get(topic)
        into = None if of_topic is None else of_topic.get(send.queue_id)
        if into is None or into.delayed:
            return -1
        magic, field, _ = into.topic_field
        queue = &self._queues[known]
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
        self._found.append((into, target, field))  # which keeps the bytes of the field
        return known

    cdef bint _judge(
        self, const uint8_t *at, Py_ssize_t size, Text *unique_id, int64_t *tags_code
    ) except *:
        """Tell whether a message can be executed here, and set its unique id and its tags code. The
        properties before and after the unique id are usually the same as in the previous message.
        """
        cdef Py_ssize_t before = find_unique_id(at, size)
        cdef const uint8_t *end = at + size
        cdef const uint8_t *after
        if before < 0 or (before and at[before - 1] != SEPARATOR):
            return False
        unique_id.at = at + before + UNIQUE_MARK_SIZE
        after = unique_id.at
        while after < end and after[0] != SEPARATOR:
            after += 1
        unique_id.size = after - unique_id.at
        if not 1 <= unique_id.size <= MOST_UNIQUE_ID or not is_plain(unique_id[0]):
            return False
        if after < end:
            after += 1
        if (
            before != PyBytes_GET_SIZE(self._before)
            or end - after != PyBytes_GET_SIZE(self._after)
            or memcmp(at, PyBytes_AS_STRING(self._before), before) != 0
            or memcmp(after, PyBytes_AS_STRING(self._after), end - after) != 0
        ):
            code = self._examine(PyUnicode_DecodeUTF8(<const char *> at, size, NULL))
            if code is None:
                return False
            self._tags_code = code
            self._before = PyBytes_FromStringAndSize(<const char *> at, before)
            self._after = PyBytes_FromStringAndSize(<const char *> after, end - after)
        tags_code[0] = self._tags_code
        return True

cdef inline bint _is_like(Send *one, Send *other) noexcept nogil:
    """Tell whether both are refused with the same answer."""
    return (
        one.binary == other.binary
        and one.queue_id == other.queue_id
        and is_same(one.topic, other.topic)
    )


cdef inline bint _is_of(Queue *queue, Send *send) noexcept nogil:
    return queue.queue_id == send.queue_id and is_same(queue.topic, send.topic)


cdef list _by_queue(Queue *queues, list found, Row *rows, Py_ssize_t count):
    """Return for each queue: the queue, its target, first queue offset, entries, and bytes of the
    records."""
    cdef list result = []
    cdef Py_ssize_t index, each
    cdef uint8_t *to
    cdef bytes entries
    for index, (queue, target, _) in enumerate(found):
        if not queues[index].count:
            continue
        entries = PyBytes_FromStringAndSize(NULL, queues[index].count * ENTRY_SIZE)
        to = <uint8_t *> PyBytes_AS_STRING(entries)
        for each in range(count):
            if rows[each].queue == index:
                to = put_entry(
                    to, rows[each].physical_offset, rows[each].size, rows[each].tags_code
                )
        result.append((queue, target, queues[index].first_offset, entries, queues[index].size))
    return result
