package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// offer sends options.rate messages per second over all connections, however fast the broker
// answers. Latencies count from when a message was due: one that had to wait behind a slow answer
// is as late as its sender sees it. With options.behind, another connection reads the topic so
// many messages behind what is stored.
func offer(total *tally) {
	body := payload(options.size)
	createTopics(sendMessageV2, body)
	frames := make([][]byte, options.conns)
	connections := make([]*connection, options.conns)
	for i := range connections {
		connections[i] = dial()
	}
	var stored atomic.Int64
	var reading chan int64
	stop := make(chan struct{})
	if options.behind > 0 {
		reading = make(chan int64)
		go func() { reading <- readBehind(&stored, stop) }()
	}
	tallies := make([]tally, options.conns)
	schedule := schedule{time.Now(), options.rate}
	var running sync.WaitGroup
	for i := range connections {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			c, seen := connections[i], &tallies[i]
			for left := (options.messages - i + options.conns - 1) / options.conns; left > 0; left-- {
				got := c.read()
				code, number := got.codeAndOpaque()
				now, due := time.Now(), schedule.due(number)
				seen.latency.record(now.Sub(due))
				seen.stalls.note(due, now)
				if code == 0 {
					seen.messages++
					stored.Add(1)
				} else {
					seen.refuse(1, got)
				}
			}
		}(i)
	}
	var touched []int
	schedule.run(options.messages, func(number int) {
		i := number % options.conns
		if len(frames[i]) == 0 {
			touched = append(touched, i)
		}
		topic, queue := place(number)
		frames[i] = appendFrame(frames[i], sendMessageV2, number, sendFields(topic, queue, ""), body)
	}, func() {
		for _, i := range touched {
			connections[i].write(frames[i])
			frames[i] = frames[i][:0]
		}
		touched = touched[:0]
	})
	running.Wait()
	total.elapsed = time.Since(schedule.begin)
	close(stop)
	if reading != nil {
		total.delivered = <-reading
	}
	for i := range tallies {
		total.merge(&tallies[i])
	}
}

// readBehind reads all queues options.behind messages behind the `stored` ones until it is stopped,
// and returns how many messages it has read.
func readBehind(stored *atomic.Int64, stop chan struct{}) (read int64) {
	c := dial()
	at := make([]int64, options.queues)
	for {
		upTo := (stored.Load() - int64(options.behind)) / int64(options.queues)
		idle := true
		for queue := range at {
			if at[queue]+32 > upTo {
				continue
			}
			idle = false
			got := c.call(pullMessage, pullFields(group, queue, at[queue], 0), nil)
			walk(got.body, func([]byte) { read++ })
			// Where files were removed, this leads to the first message that is left.
			remark, values := got.fields()
			if values["nextBeginOffset"] == "" {
				fail("pull of queue %d at %d: %s", queue, at[queue], remark)
			}
			at[queue] = max(whole(values["nextBeginOffset"]), at[queue])
		}
		select {
		case <-stop:
			return read
		default:
			if idle {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// schedule says when each message of a steady rate is due.
type schedule struct {
	begin time.Time
	rate  int // messages per second
}

func (s schedule) due(number int) time.Time {
	return s.begin.Add(time.Duration(number) * time.Second / time.Duration(s.rate))
}

// run calls each with the numbers below count when they are due, and flush after those that were
// due together.
func (s schedule) run(count int, each func(number int), flush func()) {
	// The sleep of a thread is exact to a tenth of a millisecond, that of a goroutine to one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for sent := 0; sent < count; {
		due := min(int(time.Since(s.begin)*time.Duration(s.rate)/time.Second)+1, count)
		for ; sent < due; sent++ {
			each(sent)
		}
		flush()
		if left := time.Until(s.due(sent)); left > 0 {
			rest := syscall.NsecToTimespec(int64(left))
			syscall.Nanosleep(&rest, nil)
		}
	}
}
