package main

import (
	"encoding/binary"
	"io"
	"time"
)

const unknownCode = 9_999

// refused sends what the broker has to refuse; a message counts when that is seen. The kinds:
//
//	unknown  a code that nobody has, with the fields and the body of a send
//	queue    a send to a queue that the topic does not have
//	topic    a send to a topic with a name that is not allowed
//	frame    a new connection each, on which the length of a frame is too large; inflight is 1
//	connect  for comparison: a new connection each for one good send
func refused(total *tally) {
	body := payload(options.size)
	createTopics(sendMessageV2, body)
	code, fields := sendMessageV2, sendFields(options.topic, 0, "")
	switch options.kind {
	case "unknown":
		code = unknownCode
	case "queue":
		fields = sendFields(options.topic, 9_999, "")
	case "topic":
		fields = sendFields(options.topic+".", 0, "")
	case "frame":
		onConnections(total, func(_ int, _ *connection, seen *tally) { reconnect(seen, tooLong) })
		return
	case "connect":
		onConnections(total, func(_ int, _ *connection, seen *tally) {
			reconnect(seen, func(c *connection) { c.mustCall(code, fields, body) })
		})
		return
	default:
		fail("-kind %s: expected unknown, queue, topic, frame or connect", options.kind)
	}
	onConnections(total, func(_ int, c *connection, seen *tally) {
		window(c, seen, options.messages/options.conns, func(frames []byte, opaque int) []byte {
			return appendFrame(frames, code, opaque, fields, body)
		}, func(_, code int, _ answer) {
			if code == 0 {
				fail("-kind %s: the broker has taken it", options.kind)
			}
			seen.messages++
		})
	})
}

// reconnect does the same again and again, each time on a new connection.
func reconnect(seen *tally, work func(c *connection)) {
	for left := options.messages / options.conns; left > 0; left-- {
		begin := time.Now()
		c := dial()
		work(c)
		c.socket.Close()
		seen.latency.record(time.Since(begin))
		seen.messages++
	}
}

// tooLong begins a frame that is longer than any, and waits until the broker closes.
func tooLong(c *connection) {
	// The official server looks at a frame when it has as much as a PROXY header could have.
	c.write(append(binary.BigEndian.AppendUint32(nil, 0x7FFFFFF0), make([]byte, 28)...))
	c.socket.SetReadDeadline(time.Now().Add(silence))
	if got, err := c.reader.ReadByte(); err == nil {
		fail("the broker answers byte %d to a frame that is too long", got)
	} else if failed, timed := err.(interface{ Timeout() bool }); err != io.EOF && timed && failed.Timeout() {
		fail("the broker keeps a connection with a frame that is too long")
	}
}
