# cython: language_level=3, boundscheck=False, wraparound=False
"""What a scan does for each record, compiled: bodies are copied, with their checksums, and properties
texts taken apart. Both are read in place, in the mapped files.

Places are given as in `gather.Places`. ValueError if one is outside of its buffer.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define pocketmq_prefetch(at) __builtin_prefetch(at)
    #else
    #define pocketmq_prefetch(at) ((void) (at))
    #endif
    """
    void prefetch "pocketmq_prefetch"(const void *at) noexcept nogil

cdef enum:
    MOST_NAMES = 64  # distinct ones: they are searched one after another
    AHEAD = 8  # records whose texts are on their way from the memory
    LINE = 64  # bytes of memory that come together


@cython.final
cdef class Places:
    """Ranges of bytes in several buffers, which stay as long as this does."""

    cdef Py_ssize_t count
    cdef list _views
    cdef Py_ssize_t _buffers
    cdef const uint8_t **_begins
    cdef Py_ssize_t *_sizes
    cdef const Py_ssize_t[::1] _buffer
    cdef const int64_t[::1] _offset
    cdef const int64_t[::1] _length

    def __cinit__(
        self,
        tuple buffers not None,
        const Py_ssize_t[::1] buffer not None,
        const int64_t[::1] offset not None,
        const int64_t[::1] length not None,
    ):
        cdef const uint8_t[::1] view
        cdef Py_ssize_t number
        self.count = len(buffer)
        if len(offset) != self.count or len(length) != self.count:
            raise ValueError("each place needs a buffer, an offset and a length")
        self._begins = <const uint8_t **> PyMem_Malloc(len(buffers) * sizeof(const uint8_t *))
        self._sizes = <Py_ssize_t *> PyMem_Malloc(len(buffers) * sizeof(Py_ssize_t))
        if self._begins == NULL or self._sizes == NULL:
            raise MemoryError
        self._views = []
        self._buffers = len(buffers)
        for number in range(len(buffers)):
            view = buffers[number]
            self._views.append(view)
            self._sizes[number] = len(view)
            self._begins[number] = &view[0] if len(view) else <const uint8_t *> b""
        self._buffer = buffer
        self._offset = offset
        self._length = length

    def __dealloc__(self):
        PyMem_Free(self._begins)
        PyMem_Free(self._sizes)

    cdef inline const uint8_t *begin(self, Py_ssize_t row) except NULL:
        """Where the range begins; from there on it has `length(row)` bytes."""
        cdef Py_ssize_t buffer = self._buffer[row]
        cdef int64_t offset = self._offset[row], length = self._length[row]
        if (
            not 0 <= buffer < self._buffers
            or not 0 <= offset <= self._sizes[buffer]
            or not 0 <= length <= self._sizes[buffer] - offset
        ):
            raise ValueError("a place lies outside of its buffer")
        return self._begins[buffer] + offset

    cdef inline int64_t length(self, Py_ssize_t row) noexcept:
        return self._length[row]


@cython.final
cdef class Body:
    """Bytes at a place, for a function that takes any object with a buffer. One for all bodies: a
    memoryview for each takes longer than its checksum."""

    cdef const uint8_t *begin
    cdef int64_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *> self.begin, self.size, True, flags)


def copy_bodies(
    Places bodies not None,
    crc,
    uint8_t[::1] values not None,
    int32_t[::1] offsets not None,
    uint32_t[::1] checksums not None,
):
    """Copy bodies one after another, and fill in where each begins (one more than there are
    bodies), and its `crc`."""
    cdef Py_ssize_t row, at = 0
    cdef Body body = Body()
    if len(values) > INT32_MAX or not len(offsets) - 1 == len(checksums) == bodies.count:
        raise ValueError("as many offsets and checksums as bodies are needed")
    for row in range(bodies.count):
        body.begin = bodies.begin(row)
        body.size = bodies.length(row)
        if body.size > len(values) - at:
            raise ValueError("the bodies need more room")
        offsets[row] = <int32_t> at
        checksums[row] = crc(body)
        if body.size:
            memcpy(&values[at], body.begin, body.size)
            at += body.size
    offsets[bodies.count] = <int32_t> at


cdef struct Name:
    const uint8_t *text
    int32_t size
    Py_ssize_t last  # entry with this name


cdef struct Entry:
    const uint8_t *value
    int32_t size
    int32_t code  # number of its name; -1: a later one of the record has the same name


@cython.final
cdef class CompiledTexts:
    """The entries of all texts."""

    cdef readonly Py_ssize_t rows
    cdef Places _places  # what the pointers below point into
    cdef Entry *_entries
    cdef Py_ssize_t *_begins  # of the entries of each record; one more than there are records
    cdef Name _names[MOST_NAMES]
    cdef int _count  # of names
    cdef Py_ssize_t _found  # entries
    cdef Py_ssize_t _room  # for entries
    cdef Py_ssize_t _kept  # entries with a code
    cdef Py_ssize_t _name_bytes  # of the kept entries
    cdef Py_ssize_t _value_bytes

    def __dealloc__(self):
        PyMem_Free(self._entries)
        PyMem_Free(self._begins)

    def column(self, bytes name not None):
        """Return the values of one property: their number, a bit for each record that has it, the
        offsets of the values (one more than the number of records, 4 bytes each), and the
        values."""
        cdef int code = self._find(<const uint8_t *> PyBytes_AS_STRING(name), len(name))
        cdef Py_ssize_t row, at, size = 0, found = 0
        if code < 0:
            return 0, b"", b"", b""
        cdef bytes valid = PyBytes_FromStringAndSize(NULL, (self.rows + 7) // 8)
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (self.rows + 1))
        cdef uint8_t *bit = <uint8_t *> PyBytes_AS_STRING(valid)
        cdef int32_t *offset = <int32_t *> PyBytes_AS_STRING(offsets)
        memset(bit, 0, (self.rows + 7) // 8)
        for at in range(self._begins[self.rows]):
            if self._entries[at].code == code:
                size += self._entries[at].size
        cdef bytes values = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t *target = <uint8_t *> PyBytes_AS_STRING(values)
        size = 0
        for row in range(self.rows):
            offset[row] = <int32_t> size
            for at in range(self._begins[row], self._begins[row + 1]):
                if self._entries[at].code == code:
                    memcpy(target + size, self._entries[at].value, self._entries[at].size)
                    size += self._entries[at].size
                    bit[row >> 3] |= <uint8_t> (1 << (row & 7))
                    found += 1
                    break
        offset[self.rows] = <int32_t> size
        return found, valid, offsets, values

    def maps(self):
        """Return all properties: the offsets of the records among the entries; the offsets of the
        entries' names, and the names; the offsets of their values, and the values. All offsets
        have 4 bytes, and one more than there are things."""
        cdef bytes begins = PyBytes_FromStringAndSize(NULL, 4 * (self.rows + 1))
        cdef bytes name_offsets = PyBytes_FromStringAndSize(NULL, 4 * (self._kept + 1))
        cdef bytes names = PyBytes_FromStringAndSize(NULL, self._name_bytes)
        cdef bytes value_offsets = PyBytes_FromStringAndSize(NULL, 4 * (self._kept + 1))
        cdef bytes values = PyBytes_FromStringAndSize(NULL, self._value_bytes)
        cdef int32_t *begin = <int32_t *> PyBytes_AS_STRING(begins)
        cdef int32_t *name_offset = <int32_t *> PyBytes_AS_STRING(name_offsets)
        cdef int32_t *value_offset = <int32_t *> PyBytes_AS_STRING(value_offsets)
        cdef uint8_t *name_target = <uint8_t *> PyBytes_AS_STRING(names)
        cdef uint8_t *value_target = <uint8_t *> PyBytes_AS_STRING(values)
        cdef Py_ssize_t row, at, kept = 0, name_size = 0, value_size = 0
        cdef Entry *entry
        cdef Name *name
        for row in range(self.rows):
            begin[row] = <int32_t> kept
            for at in range(self._begins[row], self._begins[row + 1]):
                entry = &self._entries[at]
                if entry.code < 0:
                    continue
                name = &self._names[entry.code]
                name_offset[kept] = <int32_t> name_size
                value_offset[kept] = <int32_t> value_size
                memcpy(name_target + name_size, name.text, name.size)
                memcpy(value_target + value_size, entry.value, entry.size)
                name_size += name.size
                value_size += entry.size
                kept += 1
        begin[self.rows] = <int32_t> kept
        name_offset[kept] = <int32_t> name_size
        value_offset[kept] = <int32_t> value_size
        return begins, name_offsets, names, value_offsets, values

    cdef bint _read(self) except -1:
        """Find the entries. Return whether that was possible."""
        cdef Py_ssize_t row, likely = 0
        cdef int64_t total = 0
        cdef const uint8_t *begin
        cdef const uint8_t *end
        self._room = 8 * self.rows + 8
        self._entries = <Entry *> PyMem_Malloc(self._room * sizeof(Entry))
        self._begins = <Py_ssize_t *> PyMem_Malloc((self.rows + 1) * sizeof(Py_ssize_t))
        if self._entries == NULL or self._begins == NULL:
            raise MemoryError
        for row in range(self.rows):
            if row + AHEAD < self.rows:
                begin = self._places.begin(row + AHEAD)
                end = begin + self._places.length(row + AHEAD)
                while begin < end:
                    prefetch(begin)
                    begin += LINE
            begin = self._places.begin(row)
            end = begin + self._places.length(row)
            total += end - begin
            if total > INT32_MAX:  # Arrow's offsets have 32 bits
                return False
            if has_high_bit(begin, end):
                try:
                    PyUnicode_DecodeUTF8(<const char *> begin, end - begin, NULL)
                except UnicodeDecodeError:
                    return False
            self._begins[row] = self._found
            if not self._read_text(begin, end, likely):
                return False
            likely = self._begins[row]
        self._begins[self.rows] = self._found
        return True

    cdef bint _read_text(
        self, const uint8_t *begin, const uint8_t *end, Py_ssize_t likely
    ) except -1:
        """Find the entries of one text. Most have the names of the record before, whose entries
        begin at `likely`, in the same order. Return False if there are too many names."""
        cdef Py_ssize_t first = self._found
        cdef const uint8_t *equals
        cdef const uint8_t *stop
        cdef int code
        while begin < end:
            code = self._entries[likely].code if likely < first else -1
            likely += 1
            if code >= 0 and has_name(begin, end, &self._names[code]):
                equals = begin + self._names[code].size
                stop = <const uint8_t *> memchr(equals, 2, end - equals)
            else:
                code = -1
                stop = <const uint8_t *> memchr(begin, 2, end - begin)
                equals = <const uint8_t *> memchr(
                    begin, 1, (stop if stop != NULL else end) - begin
                )
            if stop == NULL:
                stop = end
            # Entries without a name or a value do not count.
            if equals != NULL and equals != begin and equals + 1 != stop:
                if code < 0:
                    code = self._code(begin, equals - begin)
                    if code < 0:
                        return False
                self._add(code, equals + 1, stop - equals - 1, first)
            begin = stop + 1
        return True

    cdef int _add(
        self, int code, const uint8_t *value, Py_ssize_t size, Py_ssize_t first
    ) except -1:
        """Add an entry to the record whose entries begin at `first`."""
        cdef Name *name = &self._names[code]
        cdef Entry *entry
        if self._found == self._room:
            entry = <Entry *> PyMem_Realloc(self._entries, 2 * self._room * sizeof(Entry))
            if entry == NULL:
                raise MemoryError
            self._entries = entry
            self._room *= 2
        if name.last >= first:  # of equal names the last one wins
            entry = &self._entries[name.last]
            entry.code = -1
            self._kept -= 1
            self._name_bytes -= name.size
            self._value_bytes -= entry.size
        entry = &self._entries[self._found]
        entry.value = value
        entry.size = <int32_t> size
        entry.code = code
        name.last = self._found
        self._found += 1
        self._kept += 1
        self._name_bytes += name.size
        self._value_bytes += size
        return 0

    cdef int _code(self, const uint8_t *text, Py_ssize_t size) noexcept:
        """The number of a name, which may be a new one; -1 if there are too many."""
        cdef int code = self._find(text, size)
        if code < 0 and self._count < MOST_NAMES:
            code = self._count
            self._names[code] = Name(text, <int32_t> size, -1)
            self._count += 1
        return code

    cdef int _find(self, const uint8_t *text, Py_ssize_t size) noexcept:
        """The number of a name; -1 if it is unknown."""
        cdef int code
        for code in range(self._count):
            if self._names[code].size == size and not memcmp(self._names[code].text, text, size):
                return code
        return -1


cdef inline bint has_name(const uint8_t *begin, const uint8_t *end, const Name *name) noexcept:
    """Whether an entry has this name."""
    return (
        end - begin > name.size
        and begin[name.size] == 1
        and memcmp(begin, name.text, name.size) == 0
    )


cdef inline bint has_high_bit(const uint8_t *begin, const uint8_t *end) noexcept:
    """Whether the text is more than ASCII."""
    cdef uint64_t word, bits = 0
    cdef uint8_t rest = 0
    while end - begin >= 8:
        memcpy(&word, begin, 8)
        bits |= word
        begin += 8
    while begin < end:
        rest |= begin[0]
        begin += 1
    return (bits & <uint64_t> 0x8080808080808080) != 0 or rest >= 0x80


def take_apart(Places places not None):
    """Return the entries of the texts; None if they are not all UTF-8, or have too many different
    names."""
    cdef CompiledTexts texts = CompiledTexts()
    texts.rows = places.count
    texts._places = places
    return texts if texts._read() else None
