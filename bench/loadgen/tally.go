package main

import (
	"math/bits"
	"time"
)

// tally is what one connection, or after merging all of them, saw.
type tally struct {
	messages    int64
	failed      int64
	delivered   int64 // of the messages that a pull has passed
	elapsed     time.Duration
	latency     histogram
	stalls      stalls
	firstRemark string
}

func (t *tally) merge(other *tally) {
	t.messages += other.messages
	t.failed += other.failed
	t.delivered += other.delivered
	t.latency.merge(&other.latency)
	t.stalls = append(t.stalls, other.stalls...)
	if t.firstRemark == "" {
		t.firstRemark = other.firstRemark
	}
}

// refuse counts messages that were answered with an error.
func (t *tally) refuse(count int, got answer) {
	t.failed += int64(count)
	if t.firstRemark == "" {
		t.firstRemark, _ = got.fields()
	}
}

// histogram counts microseconds in 32 steps per power of two, so a quantile is exact to 3 percent
// whatever the range, and recording costs no memory.
type histogram struct {
	counts [64 * 32]int64
	total  int64
	max    int64
}

func step(us int64) int {
	if us < 32 {
		return int(us)
	}
	shift := bits.Len64(uint64(us)) - 6
	return (shift+1)*32 + int(us>>shift) - 32
}

func lowest(step int) int64 {
	if step < 64 {
		return int64(step)
	}
	return int64(32+step%32) << (step/32 - 1)
}

func (h *histogram) record(d time.Duration) {
	us := max(d.Microseconds(), 0) // What comes early is not late.
	h.counts[step(us)]++
	h.total++
	if us > h.max {
		h.max = us
	}
}

func (h *histogram) merge(other *histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	if other.max > h.max {
		h.max = other.max
	}
}

func (h *histogram) quantile(q float64) int64 {
	wanted := int64(q * float64(h.total))
	for i, count := range h.counts {
		if wanted -= count; wanted < 0 {
			return lowest(i)
		}
	}
	return h.max
}
