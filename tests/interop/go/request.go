package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// newProducer starts a producer of a client of its own.
func newProducer(name string) rocketmq.Producer {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver()),
		producer.WithGroupName(*group+name),
		producer.WithInstanceName(*group+name),
		producer.WithSendMsgTimeout(sendTimeout),
	)
	check(err)
	check(p.Start())
	return p
}

// request makes n requests one after another, answered by a consumer of this process, and prints
// each reply.
func request() {
	replier := newProducer("_replier")
	responder, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver()),
		consumer.WithGroupName(*group+"_responder"),
		consumer.WithInstance(*group+"_responder"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithPullInterval(0),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: *tag}
	check(responder.Subscribe(*topic, selector, func(ctx context.Context,
		messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, nil) // It would lose the body.
			check(err)
			reply.Body = append([]byte("reply to "), m.Body...)
			// The broker may not know the requester yet, which asks before its first heartbeat.
			for try := 0; ; try++ {
				if _, err = replier.SendSync(ctx, reply); err == nil {
					break
				}
				if try == 100 {
					die(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(responder.Start())
	requester := newProducer("_requester")
	for i := 0; i < *count; i++ {
		m := primitive.NewMessage(*topic, []byte(fmt.Sprintf("request %d", i)))
		m.WithTag(*tag)
		reply, err := requester.Request(context.Background(), 30*time.Second, m)
		check(err)
		printJSON(received{Topic: reply.Topic, Body: string(reply.Body),
			Properties: reply.GetProperties()})
	}
	check(requester.Shutdown())
	check(responder.Shutdown())
	check(replier.Shutdown())
}
