package main

import (
	"encoding/binary"
	"strconv"
)

const (
	updateConsumerOffset = 15
	commonBatchRequest   = 666
)

// nest sends batch requests (docs/batch-protocol.md) of options.children children each, or with
// -children 0 the same requests by themselves. -op says what they do: send, or commit an offset.
// Latencies are those of a parent.
func nest(total *tally) {
	code := sendMessageV2
	if options.op == "commit" {
		code = updateConsumerOffset
	} else if options.op != "send" {
		fail("-op %s: expected send or commit", options.op)
	}
	// One pass over the queues creates the topic and the group, so that what follows is all alike.
	first := dial()
	body := payload(options.size)
	for queue := 0; queue < options.queues; queue++ {
		first.call(sendMessageV2, sendFields(options.topic, queue, ""), body)
	}
	first.call(pullMessage, pullFields(group, 0, 0, 0), nil)
	onConnections(total, func(i int, c *connection, seen *tally) {
		flow(c, seen, code, body, i)
	})
}

// flow keeps options.inflight parents, or single requests, unanswered on one connection.
func flow(c *connection, seen *tally, code int, body []byte, queue int) {
	perRequest := max(options.children, 1)
	dispatch := ext{"dispatchCode", strconv.Itoa(code)}
	var tiles []byte
	one := func(dst []byte, opaque int) []byte {
		queue = (queue + 1) % options.queues
		if code == updateConsumerOffset {
			return appendFrame(dst, code, opaque, commitFields(queue), nil)
		}
		return appendFrame(dst, code, opaque, sendFields(options.topic, queue, ""), body)
	}
	parent := func(dst []byte, opaque int) []byte {
		if options.children == 0 {
			return one(dst, opaque)
		}
		tiles = tiles[:0]
		for child := 0; child < options.children; child++ {
			tiles = one(tiles, child)
		}
		return appendFrame(dst, commonBatchRequest, opaque, dispatch, tiles)
	}
	window(c, seen, options.messages/perRequest/options.conns, parent,
		func(_, code int, got answer) {
			switch {
			case code != 0:
				seen.refuse(perRequest, got)
			case options.children == 0:
				seen.messages++
			default:
				seen.countChildren(got.body)
			}
		})
}

// countChildren looks at every child's answer in the body of a parent's.
func (t *tally) countChildren(body []byte) {
	succeeded := 0
	for len(body) >= 8 {
		end := 4 + int(binary.BigEndian.Uint32(body))
		word := binary.BigEndian.Uint32(body[4:])
		header := 8 + int(word&0xFFFFFF)
		child := answer{byte(word >> 24), body[8:header], body[header:end]}
		if code, _ := child.codeAndOpaque(); code == 0 {
			succeeded++
		} else if t.firstRemark == "" {
			t.firstRemark, _ = child.fields()
		}
		body = body[end:]
	}
	t.messages += int64(succeeded)
	t.failed += int64(options.children - succeeded)
}

func commitFields(queue int) ext {
	return ext{
		"consumerGroup", group, "topic", options.topic, "queueId", strconv.Itoa(queue),
		"commitOffset", "1",
	}
}
