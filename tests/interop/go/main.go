// interop is the official Go client as a command line: one run does one thing and prints one JSON
// line per result.
//
//	interop send  -namesrv A -topic T -n 10 [-mode sync|async|oneway|batch] [-tag TagA] [-delay L]
//	             [-trace]
//	interop push  -namesrv A -topic T -group G -n 10 [-expression "TagA || TagB" | -sql "a > 1"]
//	             [-broadcast] [-orderly] [-fail N] [-max-reconsume N] [-pause 20ms] [-trace]
//	             [-timeout 60s]
//	interop pull  -namesrv A -topic T -group G -n 10 [-expression "TagA || TagB"] [-timeout 60s]
//
//	interop request     -namesrv A -topic T -group G -n 3
//	interop transaction -namesrv A -topic T -group G -n 6 [-unknown]
//
// send gives message i the body "go-<mode>-<i>", the key "k<i>" and the property "step" = i; oneway
// ones are followed by a message without tag.
// push prints each message whenever it is handed to it, and refuses it the first N times (every time
// if N is negative); it ends after n of them, or cleanly by SIGTERM. pull polls n messages and
// acknowledges them. request prints the replies to n requests, which it answers itself. transaction
// sends messages, and commits every second one: at once, or when the broker asks for it if they are
// unknown, which ends when it has asked for all.
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
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// A busy machine is not what tests are about.
const sendTimeout = 10 * time.Second

var (
	namesrv    = flag.String("namesrv", "127.0.0.1:9876", "name server")
	topic      = flag.String("topic", "", "topic")
	group      = flag.String("group", "interop_go", "group")
	count      = flag.Int("n", 10, "messages")
	mode       = flag.String("mode", "sync", "sync, async, oneway or batch")
	tag        = flag.String("tag", "TagA", "tag of the messages sent")
	expression = flag.String("expression", "*", "tag expression")
	sql        = flag.String("sql", "", "SQL92 expression, instead of the tags")
	timeout    = flag.Duration("timeout", 60*time.Second, "how long to wait for n messages")
	delay      = flag.Int("delay", 0, "delay level of the messages sent")
	trace      = flag.Bool("trace", false, "send the message trace")
	accessKey  = flag.String("access-key", "", "user who signs the requests of send, push and pull")
	secretKey  = flag.String("secret-key", "", "password of that user")
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
	Topic          string            `json:"topic"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	Body           string            `json:"body"`
	Properties     map[string]string `json:"properties"`
	MsgID          string            `json:"msgId"`
	OffsetMsgID    string            `json:"offsetMsgId"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	StoreTimestamp int64             `json:"storeTimestamp"`
}

func main() {
	if len(os.Args) < 2 {
		die(fmt.Errorf("a command is needed: send, push, pull, request or transaction"))
	}
	check(flag.CommandLine.Parse(os.Args[2:]))
	rlog.SetLogLevel("error")
	switch os.Args[1] {
	case "send":
		send()
	case "push":
		push()
	case "pull":
		pull()
	case "request":
		request()
	case "transaction":
		transaction()
	default:
		die(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}

func send() {
	options := []producer.Option{
		producer.WithNsResolver(resolver()),
		producer.WithGroupName(*group),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(sendTimeout),
	}
	if *trace {
		options = append(options, producer.WithTrace(traceConfig()))
	}
	if *accessKey != "" {
		options = append(options, producer.WithCredentials(credentials()))
	}
	p, err := rocketmq.NewProducer(options...)
	check(err)
	check(p.Start())
	messages := make([]*primitive.Message, *count)
	for i := range messages {
		m := primitive.NewMessage(*topic, []byte(fmt.Sprintf("go-%s-%d", *mode, i)))
		m.WithTag(*tag).WithKeys([]string{fmt.Sprintf("k%d", i)})
		m.WithProperty("step", fmt.Sprint(i))
		if *delay > 0 {
			m.WithDelayTimeLevel(*delay)
		}
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
	if *trace {
		time.Sleep(time.Second) // Nothing else waits for what it still has to say.
	}
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{*namesrv})
}

func traceConfig() *primitive.TraceConfig {
	return &primitive.TraceConfig{Access: primitive.Local, Resolver: resolver()}
}

func printSent(r *primitive.SendResult) {
	printJSON(sent{int(r.Status), r.MsgID, r.OffsetMsgID, r.MessageQueue.BrokerName,
		r.MessageQueue.QueueId, r.QueueOffset})
}

func from(m *primitive.MessageExt) received {
	return received{m.Topic, m.Queue.QueueId, m.QueueOffset, m.GetTags(), m.GetKeys(),
		string(m.Body), m.GetProperties(), m.MsgId, m.OffsetMsgId, m.ReconsumeTimes,
		m.StoreTimestamp}
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

func credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: *accessKey, SecretKey: *secretKey}
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "interop:", err)
	os.Exit(1)
}
