package main

import (
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

const (
	notFound  = 19
	noMatched = 20

	// A stored record with IPv4 hosts: its body begins here, behind 84 bytes and its length.
	bodyStart = 88
)

// pull reads whole queues, one request at a time on each connection.
func pull(total *tally) {
	tallies := make([]tally, options.conns)
	var running sync.WaitGroup
	for i := range tallies {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			c := dial()
			for round := 0; round < options.rounds; round++ {
				for queue := i; queue < options.queues; queue += options.conns {
					readQueue(c, &tallies[i], queue)
				}
			}
		}(i)
	}
	running.Wait()
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

func readQueue(c *connection, seen *tally, queue int) {
	end := offset(c, getMaxOffset, queue)
	for at := offset(c, getMinOffset, queue); at < end; {
		begin := time.Now()
		got := c.call(pullMessage, pullFields(queue, at, 0), nil)
		code, _ := got.codeAndOpaque()
		remark, values := got.fields()
		if code != 0 && code != noMatched {
			fail("pull of queue %d at %d of %d: code %d %s", queue, at, end, code, remark)
		}
		seen.latency.record(time.Since(begin))
		walk(got.body, func([]byte) { seen.messages++ })
		next := whole(values["nextBeginOffset"])
		if next <= at {
			fail("queue %d does not move on from %d", queue, at)
		}
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
	producer.call(sendMessageV2, sendFields(0, false), body)
	at := offset(consumer, getMaxOffset, 0)
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		for total.messages < int64(options.messages) {
			got := consumer.call(pullMessage, pullFields(0, at, 15_000), nil)
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
		got := producer.call(sendMessageV2, sendFields(0, false), body)
		if code, _ := got.codeAndOpaque(); code != 0 {
			remark, _ := got.fields()
			fail("send: code %d %s", code, remark)
		}
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

func pullFields(queue int, at int64, suspendMillis int) ext {
	flags := "4" // The subscription in this request counts.
	if suspendMillis > 0 {
		flags = "6" // And the broker may hold it.
	}
	return ext{
		"consumerGroup", "loadgen_consumer", "topic", options.topic, "queueId", strconv.Itoa(queue),
		"queueOffset", strconv.FormatInt(at, 10), "maxMsgNums", "32", "sysFlag", flags,
		"commitOffset", "0", "suspendTimeoutMillis", strconv.Itoa(suspendMillis),
		"subscription", "*", "subVersion", "0", "expressionType", "TAG",
	}
}

func offset(c *connection, code, queue int) int64 {
	got := c.call(code, ext{"topic", options.topic, "queueId", strconv.Itoa(queue)}, nil)
	remark, values := got.fields()
	if code, _ := got.codeAndOpaque(); code != 0 {
		fail("offset of queue %d: code %d %s", queue, code, remark)
	}
	return whole(values["offset"])
}

func whole(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail("%q is no offset", text)
	}
	return value
}
