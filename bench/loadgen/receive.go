package main

import (
	"encoding/binary"
	"strconv"
	"time"
)

const (
	notFound  = 19
	noMatched = 20

	// A stored record with IPv4 hosts: its body begins here, behind 84 bytes and its length.
	bodyStart = 88
)

// group is the consumer group of everything that reads.
const group = "loadgen_consumer"

// pull reads whole queues, one request at a time on each connection. What counts is how many
// messages the queues have, so of a filter how many it has looked at.
func pull(total *tally) {
	onConnections(total, func(i int, c *connection, seen *tally) {
		for round := 0; round < options.rounds; round++ {
			for queue := i; queue < options.queues; queue += options.conns {
				readQueue(c, seen, queue)
			}
		}
	})
}

func readQueue(c *connection, seen *tally, queue int) {
	end := offset(c, getMaxOffset, queue)
	for at := offset(c, getMinOffset, queue); at < end; {
		begin := time.Now()
		got := c.call(pullMessage, pullFields(group, queue, at, 0), nil)
		code, _ := got.codeAndOpaque()
		remark, values := got.fields()
		if code != 0 && code != noMatched {
			fail("pull of queue %d at %d of %d: code %d %s", queue, at, end, code, remark)
		}
		seen.latency.record(time.Since(begin))
		walk(got.body, func([]byte) { seen.delivered++ })
		next := whole(values["nextBeginOffset"])
		if next <= at {
			fail("queue %d does not move on from %d", queue, at)
		}
		seen.messages += next - at
		at = next
	}
}

// delay sends at a steady rate on one connection while another waits in long polls; the body
// carries the time it was sent.
func delay(total *tally) {
	consumer, producer := dial(), dial()
	body := payload(options.size)
	// The first message creates the topic. It carries no time and is not measured: a broker may
	// show it only after it answered, so it can come with the first pull.
	binary.BigEndian.PutUint64(body, 0)
	producer.mustCall(sendMessageV2, sendFields(options.topic, 0, ""), body)
	at := offset(consumer, getMaxOffset, 0)
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		for total.messages < int64(options.messages) {
			got := consumer.call(pullMessage, pullFields(group, 0, at, 15_000), nil)
			now := time.Now()
			code, _ := got.codeAndOpaque()
			remark, values := got.fields()
			if code != 0 && code != notFound {
				fail("long poll at %d: code %d %s", at, code, remark)
			}
			walk(got.body, func(record []byte) {
				if sent := int64(binary.BigEndian.Uint64(record[bodyStart:])); sent != 0 {
					total.latency.record(now.Sub(time.Unix(0, sent)))
					total.messages++
				}
			})
			at = whole(values["nextBeginOffset"])
		}
	}()
	ticks := time.NewTicker(time.Second / time.Duration(options.rate))
	defer ticks.Stop()
	for i := 0; i < options.messages; i++ {
		<-ticks.C
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		producer.mustCall(sendMessageV2, sendFields(options.topic, 0, ""), body)
	}
	<-arrived
}

// walk calls visit for each record of a pull answer.
func walk(records []byte, visit func(record []byte)) {
	for len(records) > 0 {
		size := binary.BigEndian.Uint32(records)
		visit(records[:size])
		records = records[size:]
	}
}

func pullFields(group string, queue int, at int64, suspendMillis int) ext {
	flags := "4" // The subscription in this request counts.
	if suspendMillis > 0 {
		flags = "6" // And the broker may hold it.
	}
	filter, kind := "*", "TAG"
	if options.sql != "" {
		filter, kind = options.sql, "SQL92"
	}
	return ext{
		"consumerGroup", group, "topic", options.topic, "queueId", strconv.Itoa(queue),
		"queueOffset", strconv.FormatInt(at, 10), "maxMsgNums", "32", "sysFlag", flags,
		"commitOffset", "0", "suspendTimeoutMillis", strconv.Itoa(suspendMillis),
		"subscription", filter, "subVersion", "0", "expressionType", kind,
	}
}

func offset(c *connection, code, queue int) int64 {
	got := c.mustCall(code, ext{"topic", options.topic, "queueId", strconv.Itoa(queue)}, nil)
	_, values := got.fields()
	return whole(values["offset"])
}

func whole(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail("%q is no offset", text)
	}
	return value
}
