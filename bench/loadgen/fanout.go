package main

import (
	"fmt"
	"sync"
	"time"
)

// fanout sends options.rate messages per second on one connection, while options.groups groups have
// a long poll under way for each queue. A message counts once for each group; the latencies are
// from when it was due until it arrived.
func fanout(total *tally) {
	body := unstamped()
	createTopics(sendMessageV2, body)
	tallies := make([]tally, options.groups)
	var running sync.WaitGroup
	for i := range tallies {
		p := newPoller(fmt.Sprintf("%s_%d", group, i))
		running.Add(1)
		go func(seen *tally) {
			defer running.Done()
			p.take(options.messages, func(record []byte, now time.Time) bool {
				due, found := stampOf(record)
				if found {
					seen.latency.record(now.Sub(due))
					seen.messages++
				}
				return found
			})
		}(&tallies[i])
	}
	schedule := schedule{time.Now(), options.rate}
	offerStamped(schedule, body, func(number int) (time.Time, string) {
		return schedule.due(number), ""
	})
	running.Wait()
	total.elapsed = time.Since(schedule.begin)
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

// offerStamped sends options.messages on one connection as the schedule says, until all are
// answered. For each message, `of` tells the time in its body and its own properties.
func offerStamped(schedule schedule, body []byte, of func(number int) (time.Time, string)) {
	producer := dial()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for left := options.messages; left > 0; left-- {
			got := producer.read()
			if code, _ := got.codeAndOpaque(); code != 0 {
				remark, _ := got.fields()
				fail("send: code %d %s", code, remark)
			}
		}
	}()
	var frames []byte
	schedule.run(options.messages, func(number int) {
		at, properties := of(number)
		stamp(body, at)
		fields := sendFields(options.topic, number%options.queues, properties)
		frames = appendFrame(frames, sendMessageV2, number, fields, body)
	}, func() {
		producer.write(frames)
		frames = frames[:0]
	})
	<-answered
}
