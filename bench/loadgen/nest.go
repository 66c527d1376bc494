package main

import (
	"encoding/binary"
	"strconv"
	"sync"
	"time"
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
		first.call(sendMessageV2, sendFields(queue, false), body)
	}
	first.call(pullMessage, pullFields(0, 0, 0), nil)
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
			flow(connections[i], &tallies[i], code, body, i)
		}(i)
	}
	running.Wait()
	total.elapsed = time.Since(begin)
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

// flow keeps options.inflight parents, or single requests, unanswered on one connection.
func flow(c *connection, seen *tally, code int, body []byte, queue int) {
	perRequest := max(options.children, 1)
	requests := options.messages / perRequest / options.conns
	dispatch := ext{"dispatchCode", strconv.Itoa(code)}
	begun := make([]time.Time, options.inflight)
	free := make([]int, options.inflight)
	for i := range free {
		free[i] = i
	}
	var frames, tiles []byte
	one := func(dst []byte, opaque int) []byte {
		queue = (queue + 1) % options.queues
		if code == updateConsumerOffset {
			return appendFrame(dst, code, opaque, commitFields(queue), nil)
		}
		return appendFrame(dst, code, opaque, sendFields(queue, false), body)
	}
	for sent, answered := 0, 0; answered < requests; {
		frames = frames[:0]
		for ; len(free) > 0 && sent < requests; sent++ {
			place := free[len(free)-1]
			free = free[:len(free)-1]
			begun[place] = time.Now()
			if options.children == 0 {
				frames = one(frames, place)
				continue
			}
			tiles = tiles[:0]
			for child := 0; child < options.children; child++ {
				tiles = one(tiles, child)
			}
			frames = appendFrame(frames, commonBatchRequest, place, dispatch, tiles)
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
			if code != 0 {
				seen.failed += int64(perRequest)
				if seen.firstRemark == "" {
					seen.firstRemark, _ = got.fields()
				}
				continue
			}
			if options.children == 0 {
				seen.messages++
				continue
			}
			seen.countChildren(got.body)
		}
	}
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
		"consumerGroup", "loadgen_consumer", "topic", options.topic, "queueId", strconv.Itoa(queue),
		"commitOffset", "1",
	}
}
