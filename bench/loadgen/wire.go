package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	sendMessageV2    = 310
	sendBatchMessage = 320
	pullMessage      = 11
	getMaxOffset     = 30
	getMinOffset     = 31

	release = 479 // 5.3.3
)

// ext is the ordered list name, value, name, value of a request's own header fields.
type ext []string

// appendFrame appends one request frame: length, header type and length, header, body.
func appendFrame(dst []byte, code, opaque int, fields ext, body []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	if options.binary {
		dst = appendBinaryHeader(dst, code, opaque, fields)
	} else {
		dst = appendJSONHeader(dst, code, opaque, fields)
	}
	header := uint32(len(dst) - at - 8)
	if options.binary {
		header |= 1 << 24
	}
	dst = append(dst, body...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	binary.BigEndian.PutUint32(dst[at+4:], header)
	return dst
}

func appendJSONHeader(dst []byte, code, opaque int, fields ext) []byte {
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(code), 10)
	dst = append(dst, `,"extFields":{`...)
	for i := 0; i < len(fields); i += 2 {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), fields[i]...), `":"`...)
		for _, b := range []byte(fields[i+1]) {
			switch b {
			case 1: // The separators of message properties are all that ever needs an escape.
				dst = append(dst, `\u0001`...)
			case 2:
				dst = append(dst, `\u0002`...)
			default:
				dst = append(dst, b)
			}
		}
		dst = append(dst, '"')
	}
	dst = strconv.AppendInt(append(dst, `},"flag":0,"language":"JAVA","opaque":`...), int64(opaque), 10)
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	return append(strconv.AppendInt(dst, release, 10), '}')
}

func appendBinaryHeader(dst []byte, code, opaque int, fields ext) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = append(dst, 0) // JAVA
	dst = binary.BigEndian.AppendUint16(dst, release)
	dst = binary.BigEndian.AppendUint32(dst, uint32(opaque))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // flag, no remark
	size := 0
	for i := 0; i < len(fields); i += 2 {
		size += 6 + len(fields[i]) + len(fields[i+1])
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	for i := 0; i < len(fields); i += 2 {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(fields[i])))
		dst = append(dst, fields[i]...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(fields[i+1])))
		dst = append(dst, fields[i+1]...)
	}
	return dst
}

// answer is a response frame; its slices are valid until the next one is read.
type answer struct {
	kind   byte // 0 JSON, 1 binary
	header []byte
	body   []byte
}

// codeAndOpaque reads the two numbers a send needs, without decoding the rest.
func (a answer) codeAndOpaque() (code, opaque int) {
	if a.kind == 1 {
		code = int(int16(binary.BigEndian.Uint16(a.header)))
		return code, int(int32(binary.BigEndian.Uint32(a.header[5:])))
	}
	// Our own scan: encoding/json would cost more than the whole rest of the client. The numbers
	// are searched outside of strings, so a remark can not be mistaken for a field.
	found, depth := 0, 0
	for i := 0; i < len(a.header) && found < 2; i++ {
		switch a.header[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '"':
			start := i + 1
			for i++; a.header[i] != '"'; i++ {
				if a.header[i] == '\\' {
					i++
				}
			}
			if depth != 1 || i+1 >= len(a.header) || a.header[i+1] != ':' {
				continue
			}
			switch string(a.header[start:i]) {
			case "code":
				code = number(a.header[i+2:])
				found++
			case "opaque":
				opaque = number(a.header[i+2:])
				found++
			}
		}
	}
	if found < 2 {
		fail("an answer without code or opaque: %q", a.header)
	}
	return code, opaque
}

func number(digits []byte) (value int) {
	for len(digits) > 0 && digits[0] == ' ' {
		digits = digits[1:]
	}
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			break
		}
		value = value*10 + int(d-'0')
	}
	if negative {
		return -value
	}
	return value
}

// fields decodes the whole header.
func (a answer) fields() (remark string, values map[string]string) {
	values = map[string]string{}
	if a.kind == 0 {
		var decoded struct {
			Remark    string
			ExtFields map[string]string
		}
		if err := json.Unmarshal(a.header, &decoded); err != nil {
			fail("header %q: %v", a.header, err)
		}
		return decoded.Remark, decoded.ExtFields
	}
	rest := a.header[13:]
	take := func(width int) string {
		size := 0
		for _, b := range rest[:width] {
			size = size<<8 | int(b)
		}
		text := string(rest[width : width+size])
		rest = rest[width+size:]
		return text
	}
	remark = take(4)
	for rest = rest[4:]; len(rest) > 0; {
		name := take(2)
		values[name] = take(4)
	}
	return remark, values
}

// connection is one socket with a reusable buffer for the answer last read.
type connection struct {
	socket net.Conn
	reader *bufio.Reader
	buffer []byte
}

func dial() *connection {
	socket, err := net.DialTimeout("tcp", options.address, 5*time.Second)
	if err != nil {
		fail("%v", err)
	}
	return &connection{socket: socket, reader: bufio.NewReaderSize(socket, 256<<10)}
}

func (c *connection) write(frames []byte) {
	if _, err := c.socket.Write(frames); err != nil {
		fail("write: %v", err)
	}
}

func (c *connection) read() answer {
	var lengths [8]byte
	if _, err := io.ReadFull(c.reader, lengths[:]); err != nil {
		fail("read: %v", err)
	}
	rest := int(binary.BigEndian.Uint32(lengths[:])) - 4
	if cap(c.buffer) < rest {
		c.buffer = make([]byte, rest*2)
	}
	c.buffer = c.buffer[:rest]
	if _, err := io.ReadFull(c.reader, c.buffer); err != nil {
		fail("read: %v", err)
	}
	header := binary.BigEndian.Uint32(lengths[4:]) & 0xFFFFFF
	return answer{lengths[4], c.buffer[:header], c.buffer[header:]}
}

// hasAnswer tells whether the next answer can be read without waiting for the network.
func (c *connection) hasAnswer() bool {
	if c.reader.Buffered() < 4 {
		return false
	}
	length, _ := c.reader.Peek(4)
	return c.reader.Buffered() >= 4+int(binary.BigEndian.Uint32(length))
}

// call sends one request on an otherwise idle connection and waits for its answer.
func (c *connection) call(code int, fields ext, body []byte) answer {
	c.write(appendFrame(nil, code, 1, fields, body))
	return c.read()
}

// mustCall is call for a request that has to succeed.
func (c *connection) mustCall(code int, fields ext, body []byte) answer {
	got := c.call(code, fields, body)
	if status, _ := got.codeAndOpaque(); status != 0 {
		remark, _ := got.fields()
		fail("request %d: code %d %s", code, status, remark)
	}
	return got
}

// with replaces the value of a field that is there.
func (e ext) with(name, value string) ext {
	for i := 0; i < len(e); i += 2 {
		if e[i] == name {
			e[i+1] = value
		}
	}
	return e
}
