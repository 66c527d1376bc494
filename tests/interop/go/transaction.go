package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// listener commits the messages with an even number in the property "step".
type listener struct{}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if step := m.GetProperty("step"); (step[len(step)-1]-'0')%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.UnknowState
}

// transaction sends n messages, each in a transaction of its own.
func transaction() {
	p, err := rocketmq.NewTransactionProducer(listener{},
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{*namesrv})),
		producer.WithGroupName(*group),
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
	// The ends of transactions are oneway: closing the connection over their unread answers would
	// reset it and might take them along. What is answered behind them says that they came.
	behind, err := rocketmq.NewProducer( // By its default instance it shares the connections.
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{*namesrv})),
		producer.WithGroupName(*group+"_behind"),
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
