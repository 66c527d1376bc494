package main

import (
	"sort"
	"time"
)

// A message that waits so long for its answer is part of a stall.
const stallFrom = 10 * time.Millisecond

// stalls are times from a message's due time to its answer, as microseconds since 1970. Those that
// overlap are one, so there are never more than fit into the run.
type stalls [][2]int64

func (s *stalls) note(begin, end time.Time) {
	if end.Sub(begin) < stallFrom {
		return
	}
	from, to := begin.UnixMicro(), end.UnixMicro()
	if last := len(*s) - 1; last >= 0 && from <= (*s)[last][1] {
		(*s)[last][0] = min((*s)[last][0], from)
		(*s)[last][1] = max((*s)[last][1], to)
		return
	}
	*s = append(*s, [2]int64{from, to})
}

// merged are the stalls of all connections in order, without overlaps.
func (s stalls) merged() stalls {
	sort.Slice(s, func(i, j int) bool { return s[i][0] < s[j][0] })
	found := stalls{}
	for _, each := range s {
		if last := len(found) - 1; last >= 0 && each[0] <= found[last][1] {
			found[last][1] = max(found[last][1], each[1])
			continue
		}
		found = append(found, each)
	}
	return found
}
