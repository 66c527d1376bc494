package main

import (
	"sort"
	"time"
)

// A message that waits so long for its answer is part of a stall.
const stallFrom = 10 * time.Millisecond

// stalls are times from a message's due time to its answer, as microseconds since 1970. Of those that
// overlap only the longest is kept, so there are never more than fit into the run.
type stalls [][2]int64

func (s *stalls) note(begin, end time.Time) {
	if end.Sub(begin) < stallFrom {
		return
	}
	s.add([2]int64{begin.UnixMicro(), end.UnixMicro()})
}

func (s *stalls) add(new [2]int64) {
	last := len(*s) - 1
	if last < 0 || new[0] > (*s)[last][1] {
		*s = append(*s, new)
	} else if old := (*s)[last]; new[1]-new[0] > old[1]-old[0] {
		(*s)[last] = new
	}
}

// merged are the stalls of all connections in order, the longest of those that overlap.
func (s stalls) merged() stalls {
	sort.Slice(s, func(i, j int) bool { return s[i][0] < s[j][0] })
	found := stalls{}
	for _, each := range s {
		found.add(each)
	}
	return found
}
