package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var (
	broadcast    = flag.Bool("broadcast", false, "every member gets everything")
	orderly      = flag.Bool("orderly", false, "each queue in its order")
	fail         = flag.Int("fail", 0, "how often push refuses each message; negative: always")
	maxReconsume = flag.Int("max-reconsume", -1, "after so many retries a message is given up")
	pause        = flag.Duration("pause", 0, "how long push works on each message")
)

func push() {
	c, err := rocketmq.NewPushConsumer(pushOptions()...)
	check(err)
	arrived := make(chan received, 1024)
	check(c.Subscribe(*topic, selector(), func(ctx context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			arrived <- from(m)
			time.Sleep(*pause)
		}
		// They come one by one, unless asked otherwise.
		if *fail >= 0 && int(messages[0].ReconsumeTimes) >= *fail {
			return consumer.ConsumeSuccess, nil
		}
		if *orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
		concurrently.DelayLevelWhenNextConsume = 1
		return consumer.ConsumeRetryLater, nil
	}))
	check(c.Start())
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	deadline := time.After(*timeout)
	for got := 0; got < *count; got++ {
		select {
		case m := <-arrived:
			printJSON(m)
		case <-terminated:
			got = *count
		case <-deadline:
			die(fmt.Errorf("%d of %d messages within %s", got, *count, *timeout))
		}
	}
	check(c.Shutdown())
}

func pushOptions() []consumer.Option {
	options := []consumer.Option{
		consumer.WithNsResolver(resolver()),
		consumer.WithGroupName(*group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(*orderly),
		consumer.WithMaxReconsumeTimes(int32(*maxReconsume)),
		// A member that joins or leaves is waited for no longer than that.
		consumer.WithRebalanceLockInterval(time.Second),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
	}
	if *accessKey != "" {
		options = append(options, consumer.WithCredentials(credentials()))
	}
	if *broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if *trace {
		options = append(options, consumer.WithTrace(traceConfig()))
	}
	return options
}

func selector() consumer.MessageSelector {
	if *sql != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: *sql}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: *expression}
}

func pull() {
	options := []consumer.Option{
		consumer.WithNsResolver(resolver()),
		consumer.WithGroupName(*group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if *accessKey != "" {
		options = append(options, consumer.WithCredentials(credentials()))
	}
	c, err := rocketmq.NewPullConsumer(options...)
	check(err)
	check(c.Subscribe(*topic, selector()))
	check(c.Start())
	ctx := context.Background()
	deadline := time.Now().Add(*timeout)
	for got := 0; got < *count; {
		if time.Now().After(deadline) {
			die(fmt.Errorf("%d of %d messages within %s", got, *count, *timeout))
		}
		request, err := c.Poll(ctx, time.Second)
		if errors.Is(err, consumer.ErrNoNewMsg) {
			continue
		}
		check(err)
		for _, m := range request.GetMsgList() {
			printJSON(from(m))
			got++
		}
		c.ACK(ctx, request, consumer.ConsumeSuccess)
	}
	check(c.PersistOffset(ctx, *topic))
	check(c.Shutdown())
}
