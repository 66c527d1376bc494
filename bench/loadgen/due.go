package main

import (
	"fmt"
	"time"
)

// The delay levels in use, by the seconds that they are by default.
var levels = map[int]int{1: 1, 5: 2}

// due sends messages that are to arrive later, and waits for them in long polls. With -kind level
// they have a delay level of options.after seconds; with -kind timer, a time of delivery.
//
// With options.rate, latencies are how much later than due they arrive. Without, all are sent as
// fast as the broker takes them, those with a timer for the same second, and the rate is that of
// their arrival, from the first to the last.
func due(total *tally) {
	level, known := levels[options.after]
	if options.kind != "timer" && (options.kind != "level" || !known) {
		fail("-kind %s -after %d: expected timer, or level after 1 or 5 s", options.kind, options.after)
	}
	body := unstamped()
	createTopics(sendMessageV2, body)
	p := newPoller(group)
	after := time.Duration(options.after) * time.Second
	begin := time.Now()
	later := func(at time.Time) string {
		if options.kind == "level" {
			return fmt.Sprintf("DELAY\x01%d\x02", level)
		}
		return fmt.Sprintf("TIMER_DELIVER_MS\x01%d\x02", at.UnixMilli())
	}
	var first, last time.Time
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		p.take(options.messages, func(record []byte, now time.Time) bool {
			at, found := stampOf(record)
			if !found {
				return false
			}
			if first.IsZero() {
				first = now
			}
			last = now
			total.latency.record(now.Sub(at))
			total.messages++
			return true
		})
	}()
	if options.rate > 0 {
		schedule := schedule{begin, options.rate}
		offerStamped(schedule, body, func(number int) (time.Time, string) {
			at := schedule.due(number).Add(after)
			return at, later(at)
		})
	} else {
		at := begin.Add(after)
		stamp(body, at)
		properties := later(at)
		sent, next := tally{}, 0
		c := dial()
		window(c, &sent, options.messages, func(frames []byte, opaque int) []byte {
			next++
			fields := sendFields(options.topic, next%options.queues, properties)
			return appendFrame(frames, sendMessageV2, opaque, fields, body)
		}, func(_, code int, got answer) {
			if code != 0 {
				remark, _ := got.fields()
				fail("send: code %d %s", code, remark)
			}
		})
	}
	<-arrived
	total.elapsed = last.Sub(first)
}
