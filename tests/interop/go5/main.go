// What the official client for Go does with a proxy: `go5 ENDPOINT SSL NAME`; one fact a line.
// With the name `load`, it is the load of `python -m bench.proxy`.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func check(err error) {
	if err != nil {
		fmt.Println("! " + err.Error())
		os.Exit(1)
	}
}

func say(format string, values ...any) { fmt.Printf("> "+format+"\n", values...) }

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials:   &credentials.SessionCredentials{},
	}
}

func producer(options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(""), options...)
	check(err)
	check(made.Start())
	return made
}

func simple(topic, group string, filter *rmq.FilterExpression) rmq.SimpleConsumer {
	made, err := rmq.NewSimpleConsumer(config(group),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	check(err)
	check(made.Start())
	made.Receive(context.Background(), 1, 10*time.Second) // a new group begins at the end
	return made
}

func receive(consumer rmq.SimpleConsumer, count int, seconds float64) []*rmq.MessageView {
	var got []*rmq.MessageView
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for len(got) < count && time.Now().Before(end) {
		some, _ := consumer.Receive(context.Background(), 16, 20*time.Second)
		got = append(got, some...)
	}
	return got
}

func bodies(views []*rmq.MessageView) string {
	var texts []string
	for _, view := range views {
		texts = append(texts, string(view.GetBody()))
	}
	sort.Strings(texts)
	return strings.Join(texts, " ")
}

func send(producer rmq.Producer, message *rmq.Message) []*rmq.SendReceipt {
	receipts, err := producer.Send(context.Background(), message)
	check(err)
	return receipts
}

func main() {
	rmq.EnableSsl = os.Args[2] == "true"
	rmq.ResetLogger()
	switch os.Args[3] {
	case "normal":
		normal()
	case "fifo":
		fifo()
	case "delay":
		delay()
	case "transaction":
		transaction()
	case "push":
		push()
	case "load":
		load()
	}
}

func normal() {
	tags := simple("GoNormal", "go-tags", rmq.NewFilterExpression("a || b"))
	sql := simple("GoNormal", "go-sql", rmq.NewFilterExpressionWithType("n > 3", rmq.SQL92))
	made := producer(rmq.WithTopics("GoNormal"))
	for i := 0; i < 6; i++ {
		message := &rmq.Message{Topic: "GoNormal", Body: []byte(fmt.Sprintf("m%d", i))}
		message.SetTag("abc"[i%3 : i%3+1])
		message.SetKeys(fmt.Sprintf("k%d", i))
		message.AddProperty("n", strconv.Itoa(i))
		say("sent %d", len(send(made, message)[0].MessageID))
	}
	got := receive(tags, 4, 30)
	say("tags %s", bodies(got))
	for _, view := range got[1:] {
		check(tags.Ack(context.Background(), view))
	}
	check(tags.ChangeInvisibleDuration(got[0], time.Second))
	again := receive(tags, 1, 30)
	say("again %d %v %d", len(again), bodies(again) == string(got[0].GetBody()), again[0].GetDeliveryAttempt())
	check(tags.Ack(context.Background(), again[0]))
	say("sql %s", bodies(receive(sql, 2, 30)))
}

func fifo() {
	consumer := simple("GoFifo", "go-fifo", rmq.SUB_ALL)
	made := producer(rmq.WithTopics("GoFifo"))
	for i := 0; i < 10; i++ {
		message := &rmq.Message{Topic: "GoFifo", Body: []byte(fmt.Sprintf("f%d", i))}
		message.SetMessageGroup(fmt.Sprintf("group%d", i%2))
		send(made, message)
	}
	groups := map[string][]string{}
	for count, end := 0, time.Now().Add(time.Minute); count < 10 && time.Now().Before(end); {
		for _, view := range receive(consumer, 1, 5) {
			group := *view.GetMessageGroup()
			groups[group] = append(groups[group], string(view.GetBody()))
			check(consumer.Ack(context.Background(), view))
			count++
		}
	}
	say("fifo %v", groups)
}

func delay() {
	consumer := simple("GoDelay", "go-delay", rmq.SUB_ALL)
	made := producer(rmq.WithTopics("GoDelay"))
	later := &rmq.Message{Topic: "GoDelay", Body: []byte("later")}
	later.SetDelayTimestamp(time.Now().Add(3 * time.Second))
	send(made, later)
	// Unlike that for Java, this client cannot recall.
	say("delayed %s", bodies(receive(consumer, 1, 15)))
}

func transaction() {
	consumer := simple("GoTransaction", "go-transaction", rmq.SUB_ALL)
	var asked atomic.Bool
	made := producer(rmq.WithTopics("GoTransaction"), rmq.WithTransactionChecker(&rmq.TransactionChecker{
		Check: func(view *rmq.MessageView) rmq.TransactionResolution {
			if string(view.GetBody()) == "orphan" {
				asked.Store(true)
				return rmq.COMMIT
			}
			return rmq.UNKNOWN
		},
	}))
	for _, what := range []string{"commit", "rollback", "orphan"} {
		begun := made.BeginTransaction()
		_, err := made.SendWithTransaction(context.Background(),
			&rmq.Message{Topic: "GoTransaction", Body: []byte(what)}, begun)
		check(err)
		if what == "commit" {
			check(begun.Commit())
		} else if what == "rollback" {
			check(begun.RollBack())
		}
	}
	say("transaction %s", bodies(receive(consumer, 2, 60)))
	say("asked %v", asked.Load())
}

func push() {
	var lock sync.Mutex
	attempts := map[string]int{}
	consumer, err := rmq.NewPushConsumer(config("go-push"),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{"GoPush": rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
				lock.Lock()
				defer lock.Unlock()
				body := string(view.GetBody())
				attempts[body]++
				if body == "p1" && view.GetDeliveryAttempt() < 2 || body == "p2" {
					return rmq.FAILURE
				}
				return rmq.SUCCESS
			},
		}))
	check(err)
	check(consumer.Start())
	time.Sleep(2 * time.Second)
	made := producer(rmq.WithTopics("GoPush"))
	for i := 0; i < 7; i++ {
		send(made, &rmq.Message{Topic: "GoPush", Body: []byte(fmt.Sprintf("p%d", i))})
	}
	time.Sleep(25 * time.Second)
	lock.Lock()
	say("push %v", attempts)
}

// Sends of 1 KiB: `load SENDERS SECONDS`.
func load() {
	senders, _ := strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	made := producer(rmq.WithTopics("GoNormal"))
	body := make([]byte, 1024)
	var lock sync.Mutex
	var all []time.Duration
	var group sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for i := 0; i < senders; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			var mine []time.Duration
			for time.Now().Before(end) {
				began := time.Now()
				send(made, &rmq.Message{Topic: "GoNormal", Body: body})
				mine = append(mine, time.Since(began))
			}
			lock.Lock()
			all = append(all, mine...)
			lock.Unlock()
		}()
	}
	group.Wait()
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	fmt.Printf("{\"rate\": %.1f, \"p50\": %d, \"p99\": %d}\n", float64(len(all))/seconds,
		all[len(all)/2].Microseconds(), all[len(all)*99/100].Microseconds())
}
