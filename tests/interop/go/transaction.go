package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var unknown = flag.Bool("unknown", false, "decide on transactions when the broker asks")

// listener commits the messages with an even number in the property "step".
type listener struct {
	checked chan string
}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if *unknown {
		return primitive.UnknowState
	}
	return decide(m)
}

func (l listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	l.checked <- m.GetProperty("step")
	return decide(&m.Message)
}

func decide(m *primitive.Message) primitive.LocalTransactionState {
	if step := m.GetProperty("step"); (step[len(step)-1]-'0')%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// transaction sends n messages, each in a transaction of its own.
func transaction() {
	checked := make(chan string, 1024)
	p, err := rocketmq.NewTransactionProducer(listener{checked},
		producer.WithNsResolver(resolver()),
		producer.WithGroupName(*group),
		producer.WithSendMsgTimeout(sendTimeout),
	)
	check(err)
	check(p.Start())
	for i := 0; i < *count; i++ {
		m := primitive.NewMessage(*topic, []byte(fmt.Sprintf("go-transaction-%d", i)))
		m.WithTag(*tag)
		m.WithProperty("step", fmt.Sprint(i))
		result, err := p.SendMessageInTransaction(context.Background(), m)
		check(err)
		printSent(result.SendResult)
	}
	for steps := map[string]bool{}; *unknown && len(steps) < *count; {
		select {
		case step := <-checked:
			steps[step] = true
		case <-time.After(*timeout):
			die(fmt.Errorf("%d of %d transactions were checked", len(steps), *count))
		}
	}
	// The ends of transactions are oneway: closing the connection over their unread answers would
	// reset it and might take them along. What is answered behind them says that they came.
	behind, err := rocketmq.NewProducer( // By its default instance it shares the connections.
		producer.WithNsResolver(resolver()),
		producer.WithGroupName(*group+"_behind"),
		producer.WithSendMsgTimeout(sendTimeout),
	)
	check(err)
	check(behind.Start())
	for i := 0; i < 16; i++ {
		_, err := behind.SendSync(context.Background(),
			primitive.NewMessage(*topic, []byte("behind the ends")))
		check(err)
	}
	check(p.Shutdown())
}
