package main

import (
	"encoding/binary"
	"time"
)

// Longer than any long poll: a broker that says nothing for so long has lost a message.
const silence = 60 * time.Second

// poller has a long poll under way for each queue of the topic, on one connection.
type poller struct {
	group string
	c     *connection
	at    []int64
}

// newPoller begins at the end of each queue.
func newPoller(group string) *poller {
	p := &poller{group, dial(), make([]int64, options.queues)}
	for queue := range p.at {
		p.at[queue] = offset(p.c, getMaxOffset, queue)
	}
	return p
}

// take visits the records that arrive until so many were counted; visit says which count.
func (p *poller) take(count int, visit func(record []byte, now time.Time) bool) {
	var frames []byte
	for queue := range p.at {
		frames = p.appendPoll(frames, queue)
	}
	for count > 0 {
		p.c.write(frames)
		frames = frames[:0]
		p.c.socket.SetReadDeadline(time.Now().Add(silence))
		for first := true; first || p.c.hasAnswer(); first = false {
			got := p.c.read()
			now := time.Now()
			code, queue := got.codeAndOpaque()
			if code != 0 {
				remark, values := got.fields()
				if code != notFound {
					fail("long poll of queue %d at %d: code %d %s", queue, p.at[queue], code, remark)
				}
				p.at[queue] = whole(values["nextBeginOffset"])
			}
			walk(got.body, func(record []byte) {
				// The offset is read here because to decode the header costs more than all the rest.
				p.at[queue] = int64(binary.BigEndian.Uint64(record[queueOffsetAt:])) + 1
				if visit(record, now) {
					count--
				}
			})
			frames = p.appendPoll(frames, queue)
		}
	}
}

func (p *poller) appendPoll(frames []byte, queue int) []byte {
	return appendFrame(frames, pullMessage, queue, pullFields(p.group, queue, p.at[queue], 15_000), nil)
}

// stamp writes a time into a body, and stampOf reads it from a record; the zero time is none.
func stamp(body []byte, at time.Time) {
	binary.BigEndian.PutUint64(body, uint64(at.UnixNano()))
}

func stampOf(record []byte) (at time.Time, found bool) {
	nanos := int64(binary.BigEndian.Uint64(record[bodyStart:]))
	return time.Unix(0, nanos), nanos != 0
}

// unstamped is a payload for the message that creates a topic.
func unstamped() []byte {
	body := payload(max(options.size, 8))
	binary.BigEndian.PutUint64(body, 0)
	return body
}
