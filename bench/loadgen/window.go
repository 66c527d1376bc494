package main

import (
	"fmt"
	"sync"
	"time"
)

// onConnections does work on options.conns new connections at once, each in a goroutine with a
// tally of its own, and merges these. The time counts from when all are connected.
func onConnections(total *tally, work func(i int, c *connection, seen *tally)) {
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
			work(i, connections[i], &tallies[i])
		}(i)
	}
	running.Wait()
	total.elapsed = time.Since(begin)
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

// window keeps options.inflight requests unanswered on one connection until all are answered. A
// request's opaque is its place in the window, which is unique among the unanswered ones, so
// answers may come in any order. The place that was freed last is used next.
func window(
	c *connection, seen *tally, requests int,
	request func(frames []byte, place int) []byte,
	took func(place, code int, got answer),
) {
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
			begun[place] = time.Now()
			frames = request(frames, place)
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
			took(place, code, got)
		}
	}
}

// place is where the n-th message goes: over all topics, then over their queues.
func place(n int) (topic string, queue int) {
	if options.topics == 1 {
		return options.topic, n % options.queues
	}
	return topicNames[n%options.topics], n / options.topics % options.queues
}

var topicNames []string

// nameTopics fills topicNames.
func nameTopics() {
	for i := 0; i < options.topics; i++ {
		topicNames = append(topicNames, fmt.Sprintf("%s-%d", options.topic, i))
	}
}

// createTopics sends one message to each topic, by itself: the measured sends must not race for
// topics that are not there yet.
func createTopics(code int, body []byte) {
	c := dial()
	for i := 0; i < options.topics; i++ {
		topic, _ := place(i)
		c.mustCall(code, sendFields(topic, 0, ""), body)
	}
}
