// What the official client for Go does with a proxy: `go5 ENDPOINT SSL PREFIX NAME...`.
// The scenarios run side by side. Each fact is one line, `> NAME: FACT`. Topics and groups begin
// with the prefix. `go5 ENDPOINT SSL PREFIX load SENDERS SECONDS` is the load of
// `python -m bench.proxy`.
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

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("ACCESS_KEY"),
			AccessSecret: os.Getenv("SECRET_KEY"),
		},
	}
}

type scenario string

func (s scenario) say(format string, values ...any) {
	fmt.Printf("> "+string(s)+": "+format+"\n", values...)
}

func (s scenario) topic() string { return os.Args[3] + string(s) }

func (s scenario) producer(options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(""), append(options, rmq.WithTopics(s.topic()))...)
	check(err)
	check(made.Start())
	return made
}

// A simple consumer of a group that has begun: it gets what is sent from now on.
func (s scenario) simple(group string, filter *rmq.FilterExpression) rmq.SimpleConsumer {
	made, err := rmq.NewSimpleConsumer(config(os.Args[3]+group),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{s.topic(): filter}))
	check(err)
	check(made.Start())
	made.Receive(context.Background(), 1, 10*time.Second)
	return made
}

func (s scenario) message(body string) *rmq.Message {
	return &rmq.Message{Topic: s.topic(), Body: []byte(body)}
}

func (s scenario) pushing(consume func(view *rmq.MessageView) rmq.ConsumerResult) {
	consumer, err := rmq.NewPushConsumer(config(s.topic()),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{s.topic(): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	check(err)
	check(consumer.Start())
	time.Sleep(3 * time.Second) // its first receives have begun
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
	if os.Args[4] == "load" {
		load()
		return
	}
	scenarios := map[string]func(scenario){
		"normal": scenario.normal, "fifo": scenario.fifo, "delay": scenario.delay,
		"transaction": scenario.transaction, "push": scenario.push, "order": scenario.order,
		"steady":         scenario.steady,
		"signed-send":    func(s scenario) { s.signed("sent", s.signedSend) },
		"signed-receive": func(s scenario) { s.signed("received", s.signedReceive) },
		"signed-push":    func(s scenario) { s.signed("pushed", s.signedPush) },
	}
	var group sync.WaitGroup
	for _, name := range os.Args[4:] {
		group.Add(1)
		go func() {
			defer group.Done()
			scenarios[name](scenario(name))
		}()
	}
	group.Wait()
}

// Filters by tag and by SQL; a nack, a nack of what came back, an acknowledgement of its new handle.
func (s scenario) normal() {
	ctx := context.Background()
	tags := s.simple("tags", rmq.NewFilterExpression("a || b"))
	sql := s.simple("sql", rmq.NewFilterExpressionWithType("n > 3", rmq.SQL92))
	made := s.producer()
	for i := 0; i < 6; i++ {
		message := s.message(fmt.Sprintf("m%d", i))
		message.SetTag("abc"[i%3 : i%3+1])
		message.SetKeys(fmt.Sprintf("k%d", i))
		message.AddProperty("n", strconv.Itoa(i))
		if id := send(made, message)[0].MessageID; len(id) != 34 {
			s.say("id %s", id)
		}
	}
	got := receive(tags, 4, 30)
	var seen []string
	for _, view := range got {
		seen = append(seen, fmt.Sprintf("%s %s %s %s %d", view.GetBody(), *view.GetTag(),
			strings.Join(view.GetKeys(), ","), view.GetProperties()["n"], view.GetDeliveryAttempt()))
	}
	sort.Strings(seen)
	for _, fact := range seen {
		s.say("%s", fact)
	}
	for _, view := range got[1:] {
		check(tags.Ack(ctx, view))
	}
	begun := time.Now()
	check(tags.ChangeInvisibleDuration(got[0], time.Second))
	again := receive(tags, 1, 30)
	s.say("back after %d ms", time.Since(begun).Milliseconds())
	s.say("again %v %d", bodies(again) == string(got[0].GetBody()), again[0].GetDeliveryAttempt())
	check(tags.ChangeInvisibleDuration(again[0], 10*time.Second))
	check(tags.Ack(ctx, again[0]))
	s.say("sql %s", bodies(receive(sql, 2, 30)))
	s.say("left %d", len(receive(tags, 1, 12)))
}

// Two message groups, in order.
func (s scenario) fifo() {
	consumer := s.simple("fifo", rmq.SUB_ALL)
	made := s.producer()
	for i := 0; i < 10; i++ {
		message := s.message(fmt.Sprintf("f%d", i))
		message.SetMessageGroup(fmt.Sprintf("group%d", i%2))
		send(made, message)
	}
	groups := map[string]string{}
	for count, end := 0, time.Now().Add(time.Minute); count < 10 && time.Now().Before(end); {
		for _, view := range receive(consumer, 1, 5) {
			groups[*view.GetMessageGroup()] += " " + string(view.GetBody())
			check(consumer.Ack(context.Background(), view))
			count++
		}
	}
	s.say("group0%s", groups["group0"])
	s.say("group1%s", groups["group1"])
}

// A delayed message. Unlike that for Java, this client cannot recall.
func (s scenario) delay() {
	consumer := s.simple("delay", rmq.SUB_ALL)
	made := s.producer()
	due := time.Now().Add(3 * time.Second)
	later := s.message("later")
	later.SetDelayTimestamp(due)
	send(made, later)
	got := receive(consumer, 1, 15)
	s.say("delivered %s, early %v", bodies(got), time.Now().Before(due.Truncate(time.Millisecond)))
}

// Commit, rollback, and a transaction that the server asks about.
func (s scenario) transaction() {
	consumer := s.simple("transaction", rmq.SUB_ALL)
	var asked atomic.Bool
	made := s.producer(rmq.WithTransactionChecker(&rmq.TransactionChecker{
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
		_, err := made.SendWithTransaction(context.Background(), s.message(what), begun)
		check(err)
		if what == "commit" {
			check(begun.Commit())
		} else if what == "rollback" {
			check(begun.RollBack())
		}
	}
	s.say("committed %s", bodies(receive(consumer, 2, 60)))
	s.say("asked %v", asked.Load())
}

// What a push consumer was given, in order.
type deliveries struct {
	sync.Mutex
	seen []string
}

func (d *deliveries) add(body string) {
	d.Lock()
	defer d.Unlock()
	d.seen = append(d.seen, body)
}

// Wait for so many deliveries; then for what the proxy does later, and for one too many.
func (d *deliveries) settle(wanted int) []string {
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		d.Lock()
		count := len(d.seen)
		d.Unlock()
		if count >= wanted {
			break
		}
	}
	more, _ := strconv.Atoi(os.Getenv("SETTLE_SECONDS"))
	time.Sleep(time.Duration(more) * time.Second)
	d.Lock()
	defer d.Unlock()
	return d.seen
}

// A push consumer that fails once on one message, and always on another.
func (s scenario) push() {
	var got deliveries
	s.pushing(func(view *rmq.MessageView) rmq.ConsumerResult {
		body := string(view.GetBody())
		got.add(body)
		if body == "p1" && view.GetDeliveryAttempt() < 2 || body == "p2" {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	made := s.producer()
	for i := 0; i < 7; i++ {
		send(made, s.message(fmt.Sprintf("p%d", i)))
	}
	seen := got.settle(10)
	sort.Strings(seen)
	for at := 0; at < len(seen); {
		count := 1
		for at+count < len(seen) && seen[at+count] == seen[at] {
			count++
		}
		s.say("%s %d", seen[at], count)
		at += count
	}
}

// A push consumer in order, which always fails on the second message of three.
func (s scenario) order() {
	var got deliveries
	s.pushing(func(view *rmq.MessageView) rmq.ConsumerResult {
		got.add(string(view.GetBody()))
		if string(view.GetBody()) == "o1" {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	made := s.producer()
	for i := 0; i < 3; i++ {
		message := s.message(fmt.Sprintf("o%d", i))
		message.SetMessageGroup("g")
		send(made, message)
	}
	seen := got.settle(5)
	// This client goes on with the next message of a batch while one waits for its retry.
	sort.Strings(seen)
	s.say("%s", strings.Join(seen, " "))
}

// What becomes of the user of the environment, or of nobody: what it did, or why it could not.
func (s scenario) signed(done string, attempt func() error) {
	ended := make(chan error, 1)
	go func() { ended <- attempt() }()
	select {
	case err := <-ended:
		if err == nil {
			s.say("%s", done)
		} else {
			s.say("failed / %s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	case <-time.After(20 * time.Second): // A start waits for its settings without end.
		s.say("failed / silence")
	}
}

func (s scenario) signedSend() error {
	made, err := rmq.NewProducer(config(""), rmq.WithTopics(s.topic()))
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		_, err = made.Send(context.Background(), s.message("signed"))
	}
	return err
}

func (s scenario) signedReceive() error {
	made, err := rmq.NewSimpleConsumer(config(s.topic()),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{s.topic(): rmq.SUB_ALL}))
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		_, err = made.Receive(context.Background(), 1, 10*time.Second)
	}
	if err != nil && strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
		return nil // there is none
	}
	return err
}

func (s scenario) signedPush() error {
	arrived := make(chan struct{}, 16)
	consumer, err := rmq.NewPushConsumer(config(s.topic()),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{s.topic(): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
				arrived <- struct{}{}
				return rmq.SUCCESS
			}}))
	if err == nil {
		err = consumer.Start()
	}
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // its first receives have begun
	if err = s.signedSend(); err != nil {
		return err
	}
	<-arrived
	return nil
}

// Sends, at most 50 a second, and receives without end, a line each.
func (s scenario) steady() {
	made := s.producer()
	consumer := s.simple("steady", rmq.SUB_ALL)
	go func() {
		for i := 0; ; i++ {
			if _, err := made.Send(context.Background(), s.message(strconv.Itoa(i))); err == nil {
				s.say("sent %d", i)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for {
		some, err := consumer.Receive(context.Background(), 32, 20*time.Second)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
		for _, view := range some {
			s.say("got %s", view.GetBody())
			consumer.Ack(context.Background(), view)
		}
	}
}

// Sends of 1 KiB: `PREFIX load SENDERS SECONDS`, to the topic of `normal`.
func load() {
	s := scenario("normal")
	senders, _ := strconv.Atoi(os.Args[5])
	seconds, _ := strconv.ParseFloat(os.Args[6], 64)
	made := s.producer()
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
				send(made, &rmq.Message{Topic: s.topic(), Body: body})
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
