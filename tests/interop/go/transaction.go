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
	check(p.Shutdown())
}
