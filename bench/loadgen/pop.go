package main

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	popMessage = 200050
	ackMessage = 200051

	pollingTimeout = 210

	// Places in a stored record with IPv4 hosts.
	queueIDAt     = 12
	queueOffsetAt = 20
)

// pop takes all messages of the topic, 32 at a time, and acknowledges each by itself, as consumers
// do. Each connection has one pop on its way; it is written together with the acknowledgements of
// the pop before. A message counts when its acknowledgement is answered; the latencies are those of
// pops.
func pop(total *tally) {
	first := dial()
	wanted := int64(0)
	for queue := 0; queue < options.queues; queue++ {
		wanted += offset(first, getMaxOffset, queue) - offset(first, getMinOffset, queue)
	}
	var taken atomic.Int64
	onConnections(total, func(_ int, c *connection, seen *tally) {
		consume(c, seen, &taken, wanted)
	})
}

// consume pops until all connections together have taken what is wanted.
func consume(c *connection, seen *tally, taken *atomic.Int64, wanted int64) {
	var frames []byte
	for acks := 0; ; {
		popping := taken.Load() < wanted
		begun := time.Now()
		if popping {
			frames = appendFrame(frames, popMessage, 0, popFields(), nil)
		}
		if len(frames) == 0 {
			return
		}
		c.write(frames)
		frames = frames[:0]
		answers := acks
		acks = 0
		if popping {
			answers++
		}
		for ; answers > 0; answers-- {
			got := c.read()
			code, opaque := got.codeAndOpaque()
			switch {
			case opaque == 0 && code == 0:
				seen.latency.record(time.Since(begun))
				frames, acks = appendAcks(frames, got)
				taken.Add(int64(acks))
			case opaque == 0 && code != pollingTimeout, opaque != 0 && code != 0:
				remark, _ := got.fields()
				fail("request %d of a pop: code %d %s", opaque, code, remark)
			case opaque != 0:
				seen.messages++
			}
		}
	}
}

// appendAcks appends an acknowledgement of each popped message.
func appendAcks(frames []byte, got answer) ([]byte, int) {
	_, values := got.fields()
	starts := map[string]string{}
	for _, entry := range strings.Split(values["startOffsetInfo"], ";") {
		words := strings.Split(entry, " ")
		starts[words[1]] = words[2]
	}
	count := 0
	walk(got.body, func(record []byte) {
		count++
		queue := strconv.Itoa(int(binary.BigEndian.Uint32(record[queueIDAt:])))
		at := strconv.FormatInt(int64(binary.BigEndian.Uint64(record[queueOffsetAt:])), 10)
		handle := strings.Join([]string{
			starts[queue], values["popTime"], values["invisibleTime"], values["reviveQid"], "0",
			options.broker, queue, at,
		}, " ")
		frames = appendFrame(frames, ackMessage, count, ext{
			"consumerGroup", group, "topic", options.topic, "queueId", queue,
			"extraInfo", handle, "offset", at,
		}, nil)
	})
	return frames, count
}

func popFields() ext {
	return ext{
		"consumerGroup", group, "topic", options.topic, "queueId", "-1",
		"maxMsgNums", "32", "invisibleTime", "60000", "pollTime", "200", "bornTime",
		strconv.FormatInt(time.Now().UnixMilli(), 10), "initMode", "0", "expType", "TAG",
		"exp", "*", "order", "false",
	}
}
