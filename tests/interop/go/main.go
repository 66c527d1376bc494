// interop is the official Go client as a command line: one run does one thing and prints one JSON
// line per result.
//
//	interop send  -namesrv A -topic T -n 10 [-mode sync|async|oneway|batch] [-tag TagA]
//	interop push  -namesrv A -topic T -group G -n 10 [-expression "TagA || TagB" | -sql "a > 1"]
//	             [-timeout 60s]
//
//	interop request     -namesrv A -topic T -group G -n 3
//	interop transaction -namesrv A -topic T -group G -n 6
//
// send gives message i the body "go-<mode>-<i>", the key "k<i>" and the property "step" = i; oneway
// ones are followed by a message without tag.
// push prints each message it consumes and ends after n of them. request prints the replies to n
// requests, which it answers itself. transaction sends messages, and commits every second one.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv    = flag.String("namesrv", "127.0.0.1:9876", "name server")
	topic      = flag.String("topic", "", "topic")
	group      = flag.String("group", "interop_go", "group")
	count      = flag.Int("n", 10, "messages")
	mode       = flag.String("mode", "sync", "sync, async, oneway or batch")
	tag        = flag.String("tag", "TagA", "tag of the messages sent")
	expression = flag.String("expression", "*", "tag expression")
	sql        = flag.String("sql", "", "SQL92 expression, instead of the tags")
	timeout    = flag.Duration("timeout", 60*time.Second, "how long push waits for n messages")
)

type sent struct {
	Status      int    `json:"status"`
	MsgID       string `json:"msgId"`
	OffsetMsgID string `json:"offsetMsgId"`
	BrokerName  string `json:"brokerName"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
}

type received struct {
	Topic       string            `json:"topic"`
	QueueID     int               `json:"queueId"`
	QueueOffset int64             `json:"queueOffset"`
	Tags        string            `json:"tags"`
	Keys        string            `json:"keys"`
	Body        string            `json:"body"`
	Properties  map[string]string `json:"properties"`
	MsgID       string            `json:"msgId"`
	OffsetMsgID string            `json:"offsetMsgId"`
}

func main() {
	if len(os.Args) < 2 {
		die(fmt.Errorf("a command is needed: send, push, request or transaction"))
	}
	check(flag.CommandLine.Parse(os.Args[2:]))
	rlog.SetLogLevel("error")
	switch os.Args[1] {
	case "send":
		send()
	case "push":
		push()
	case "request":
		request()
	case "transaction":
		transaction()
	default:
		die(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}

func send() {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{*namesrv})),
		producer.WithGroupName(*group),
		producer.WithRetry(2),
	)
	check(err)
	check(p.Start())
	messages := make([]*primitive.Message, *count)
	for i := range messages {
		m := primitive.NewMessage(*topic, []byte(fmt.Sprintf("go-%s-%d", *mode, i)))
		m.WithTag(*tag).WithKeys([]string{fmt.Sprintf("k%d", i)})
		m.WithProperty("step", fmt.Sprint(i))
		messages[i] = m
	}
	ctx := context.Background()
	switch *mode {
	case "batch":
		result, err := p.SendSync(ctx, messages...)
		check(err)
		printSent(result)
	case "sync":
		for _, m := range messages {
			result, err := p.SendSync(ctx, m)
			check(err)
			printSent(result)
		}
	case "oneway":
		for _, m := range messages {
			check(p.SendOneWay(ctx, m))
		}
		// This client does not mark its oneway requests, so they are answered; and it would close
		// the connection over the unread answers, which resets it and may take requests along.
		_, err := p.SendSync(ctx, primitive.NewMessage(*topic, []byte("behind the oneway ones")))
		check(err)
	case "async":
		var pending sync.WaitGroup
		var printing sync.Mutex
		for _, m := range messages {
			pending.Add(1)
			check(p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
				defer pending.Done()
				check(err)
				printing.Lock()
				defer printing.Unlock()
				printSent(result)
			}, m))
		}
		pending.Wait()
	default:
		die(fmt.Errorf("no such mode: %s", *mode))
	}
	check(p.Shutdown())
}

func push() {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{*namesrv})),
		consumer.WithGroupName(*group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	arrived := make(chan *primitive.MessageExt, 1024)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: *expression}
	if *sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: *sql}
	}
	check(c.Subscribe(*topic, selector, func(_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			arrived <- m
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	deadline := time.After(*timeout)
	for got := 0; got < *count; got++ {
		select {
		case m := <-arrived:
			printJSON(received{m.Topic, m.Queue.QueueId, m.QueueOffset, m.GetTags(), m.GetKeys(),
				string(m.Body), m.GetProperties(), m.MsgId, m.OffsetMsgId})
		case <-deadline:
			die(fmt.Errorf("%d of %d messages within %s", got, *count, *timeout))
		}
	}
	check(c.Shutdown())
}

func printSent(r *primitive.SendResult) {
	printJSON(sent{int(r.Status), r.MsgID, r.OffsetMsgID, r.MessageQueue.BrokerName,
		r.MessageQueue.QueueId, r.QueueOffset})
}

func printJSON(value any) {
	line, err := json.Marshal(value)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		die(err)
	}
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "interop:", err)
	os.Exit(1)
}
