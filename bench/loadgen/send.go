package main

import (
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

const properties = "UNIQ_KEY\x017F00000100002A139A8C4E5B4A2F0000\x02WAIT\x01true\x02TAGS\x01TagA\x02"

// send keeps options.inflight requests unanswered on each connection until all are sent.
func send(total *tally) {
	code, body := sendMessageV2, payload(options.size)
	if options.batch > 1 {
		code, body = sendBatchMessage, batchBody(options.batch, body)
	}
	// The topic is created by one request alone: the measured ones must not race for it.
	first := dial().call(code, sendFields(0, options.batch > 1), body)
	if code, _ := first.codeAndOpaque(); code != 0 {
		remark, _ := first.fields()
		fail("send: code %d %s", code, remark)
	}
	connections := make([]*connection, options.conns)
	for i := range connections {
		connections[i] = dial()
	}
	tallies := make([]tally, options.conns)
	var running sync.WaitGroup
	begin := time.Now()
	for i := range connections {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			requests := options.messages / options.batch / options.conns
			stream(connections[i], &tallies[i], code, body, requests, i)
		}(i)
	}
	running.Wait()
	total.elapsed = time.Since(begin)
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

// stream sends its requests with a sliding window. A request's opaque is its place in the window,
// which is unique among the unanswered ones, so answers may come in any order.
func stream(c *connection, seen *tally, code int, body []byte, requests, queue int) {
	begun := make([]time.Time, options.inflight)
	free := make([]int, options.inflight)
	for i := range free {
		free[i] = i
	}
	var frames []byte
	for sent, answered := 0, 0; answered < requests; {
		frames = frames[:0]
		for ; len(free) > 0 && sent < requests; sent++ {
			place := free[len(free)-1]
			free = free[:len(free)-1]
			queue = (queue + 1) % options.queues
			begun[place] = time.Now()
			frames = appendFrame(frames, code, place, sendFields(queue, options.batch > 1), body)
		}
		if len(frames) > 0 {
			c.write(frames)
		}
		for first := true; answered < requests && (first || c.hasAnswer()); first = false {
			got := c.read()
			code, place := got.codeAndOpaque()
			seen.latency.record(time.Since(begun[place]))
			free = append(free, place)
			answered++
			if code == 0 {
				seen.messages += int64(options.batch)
				continue
			}
			seen.failed += int64(options.batch)
			if seen.firstRemark == "" {
				seen.firstRemark, _ = got.fields()
			}
		}
	}
}

func sendFields(queue int, batch bool) ext {
	return ext{
		"a", "loadgen", "b", options.topic, "c", "TBW102", "d", strconv.Itoa(options.queues),
		"e", strconv.Itoa(queue), "f", "0", "g", strconv.FormatInt(time.Now().UnixMilli(), 10),
		"h", "0", "i", properties, "j", "0", "k", "false", "m", strconv.FormatBool(batch),
	}
}

// payload is text that does not compress to nothing.
func payload(size int) []byte {
	text := make([]byte, size)
	state := uint64(88172645463325252)
	for i := range text {
		state ^= state << 7
		state ^= state >> 9
		text[i] = 'a' + byte(state%26)
	}
	return text
}

// batchBody is the body of SEND_BATCH_MESSAGE: per message total size, magic, CRC and flag (unused),
// body length and body, properties length and properties.
func batchBody(count int, body []byte) []byte {
	var all []byte
	for i := 0; i < count; i++ {
		all = binary.BigEndian.AppendUint32(all, uint32(22+len(body)+len(properties)))
		all = append(all, make([]byte, 12)...)
		all = binary.BigEndian.AppendUint32(all, uint32(len(body)))
		all = append(all, body...)
		all = binary.BigEndian.AppendUint16(all, uint16(len(properties)))
		all = append(all, properties...)
	}
	return all
}
