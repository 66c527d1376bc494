package main

import (
	"encoding/binary"
	"strconv"
	"time"
)

const (
	uniqueKey  = "7F00000100002A139A8C4E5B4A2F0000"
	properties = "UNIQ_KEY\x01" + uniqueKey + "\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)

// send keeps options.inflight requests unanswered on each connection until all are sent.
func send(total *tally) {
	code, body := sendMessageV2, payload(options.size)
	if options.batch > 1 {
		code, body = sendBatchMessage, batchBody(options.batch, body)
	}
	createTopics(code, body)
	onConnections(total, func(i int, c *connection, seen *tally) {
		requests := options.messages / options.batch / options.conns
		next := i
		window(c, seen, requests, func(frames []byte, opaque int) []byte {
			next++
			topic, queue := place(next)
			return appendFrame(frames, code, opaque, sendFields(topic, queue, rare(next)), body)
		}, func(_, code int, got answer) {
			if code == 0 {
				seen.messages += int64(options.batch)
			} else {
				seen.refuse(options.batch, got)
			}
		})
	})
}

// rare is a property of one message in options.rare, for filters.
func rare(n int) string {
	if options.rare > 0 && n%options.rare == 0 {
		return "rare\x01yes\x02"
	}
	return ""
}

// sendFields are the fields of a send; `more` is appended to its properties.
func sendFields(topic string, queue int, more string) ext {
	return ext{
		"a", "loadgen", "b", topic, "c", "TBW102", "d", strconv.Itoa(options.queues),
		"e", strconv.Itoa(queue), "f", "0", "g", strconv.FormatInt(time.Now().UnixMilli(), 10),
		"h", "0", "i", properties + more, "j", "0", "k", "false",
		"m", strconv.FormatBool(options.batch > 1),
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
