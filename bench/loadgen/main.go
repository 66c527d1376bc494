// loadgen measures a broker over the remoting protocol. One run does one thing and prints one line
// of JSON; rates are messages per second, latencies microseconds.
//
//	loadgen send  -conns 4 -inflight 64 -n 200000 -size 1024 [-batch 32] [-binary] [-topics 256 -queues 8]
//	loadgen offer -conns 1000 -rate 20000 -n 600000 [-behind 200000]   sends at a rate, whatever comes back
//	loadgen nest  -conns 4 -inflight 4 -children 20 [-op commit]   batch requests; -children 0: singles
//	loadgen pull  -conns 4 [-rounds 2] [-sql "rare = 'yes'"]   reads every queue from its first to its last message
//	loadgen pop   -conns 4 -broker NAME             pops all messages, and acknowledges each
//	loadgen delay -n 1000 -rate 500                 from send to arrival in a waiting long poll
//	loadgen fanout -n 50000 -rate 5000 -groups 20   the same for many groups
//	loadgen due -n 5000 [-rate 1000] -kind level -after 1   delayed messages, or -kind timer
//	loadgen transact -conns 4 -inflight 64 -n 50000   half messages, each of them committed
//	loadgen routes|register -brokers 100 -topics 1000 -n 50000   of a name server
//	loadgen refused -kind queue -n 100000           what a broker has to refuse
//
// Every connection is one goroutine: it writes what its window allows in one call, then takes the
// answers that are there. So the generator itself costs little of the cores it shares with the
// broker it measures.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// options are the command line, read once before anything starts.
var options struct {
	address  string
	topic    string
	messages int
	conns    int
	inflight int
	size     int
	batch    int
	queues   int
	binary   bool
	rate     int
	rounds   int
	children int
	op       string
	broker   string
	topics   int
	behind   int
	rare     int
	sql      string
	groups   int
	kind     string
	after    int
	brokers  int
	spread   int
}

// result is the printed line.
type result struct {
	Mode        string  `json:"mode"`
	Messages    int64   `json:"messages"`
	Failed      int64   `json:"failed"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"per_second"`
	P50         int64   `json:"p50_us"`
	P99         int64   `json:"p99_us"`
	P999        int64   `json:"p999_us"`
	Max         int64   `json:"max_us"`
	Delivered   int64   `json:"delivered"`
	Stalls      stalls  `json:"stalls_us"`
	FirstRemark string  `json:"first_remark,omitempty"`
}

func main() {
	flag.StringVar(&options.address, "addr", "127.0.0.1:10911", "broker")
	flag.StringVar(&options.topic, "topic", "bench", "topic; created by the first send")
	flag.IntVar(&options.messages, "n", 100_000, "messages to send")
	flag.IntVar(&options.conns, "conns", 4, "connections")
	flag.IntVar(&options.inflight, "inflight", 64, "requests without answer per connection")
	flag.IntVar(&options.size, "size", 1024, "bytes of a body")
	flag.IntVar(&options.batch, "batch", 1, "messages of a request")
	flag.IntVar(&options.queues, "queues", 4, "queues of the topic")
	flag.BoolVar(&options.binary, "binary", false, "binary headers instead of JSON")
	flag.IntVar(&options.rate, "rate", 500, "messages per second of what has a rate; 0 in due: all at once")
	flag.IntVar(&options.rounds, "rounds", 1, "how often pull reads everything")
	flag.IntVar(&options.children, "children", 20, "requests in one of nest")
	flag.StringVar(&options.op, "op", "send", "what the requests of nest do: send or commit")
	flag.StringVar(&options.broker, "broker", "", "name of the broker, for the handles of pop")
	flag.IntVar(&options.topics, "topics", 1, "topics; of more than one the names end in -0, -1, ...")
	flag.IntVar(&options.behind, "behind", 0, "with offer: read so many messages behind")
	flag.IntVar(&options.rare, "rare", 0, "one message in so many has the property rare = 'yes'")
	flag.StringVar(&options.sql, "sql", "", "filter of pulls, in SQL92")
	flag.IntVar(&options.groups, "groups", 20, "groups of fanout")
	flag.StringVar(&options.kind, "kind", "", "what due or refused sends")
	flag.IntVar(&options.after, "after", 1, "seconds until messages of due are due")
	flag.IntVar(&options.brokers, "brokers", 100, "brokers at the name server")
	flag.IntVar(&options.spread, "spread", 10, "brokers of a topic at the name server")
	modes := map[string]func(*tally){
		"send": send, "offer": offer, "nest": nest, "pull": pull, "pop": pop, "delay": delay,
		"fanout": fanout, "due": due, "transact": transact, "routes": routes, "register": register,
		"refused": refused,
	}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fail("usage: loadgen MODE [options]; the modes are in main.go")
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail("%v", err)
	}
	nameTopics()
	var total tally
	begin := time.Now()
	modes[os.Args[1]](&total)
	if total.elapsed == 0 {
		total.elapsed = time.Since(begin)
	}
	line, err := json.Marshal(result{
		Mode:        os.Args[1],
		Messages:    total.messages,
		Failed:      total.failed,
		Seconds:     total.elapsed.Seconds(),
		PerSecond:   float64(total.messages) / total.elapsed.Seconds(),
		P50:         total.latency.quantile(0.5),
		P99:         total.latency.quantile(0.99),
		P999:        total.latency.quantile(0.999),
		Max:         total.latency.max,
		Delivered:   total.delivered,
		Stalls:      total.stalls.merged(),
		FirstRemark: total.firstRemark,
	})
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(string(line))
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "loadgen: "+format+"\n", arguments...)
	os.Exit(1)
}
