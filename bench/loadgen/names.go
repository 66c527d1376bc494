package main

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	registerBroker = 103
	getRoute       = 105
)

// routes registers options.brokers brokers at a name server, with options.topics topics that have
// options.spread brokers each, and asks for the topics' routes.
func routes(total *tally) {
	registrar := dial() // Brokers whose connection ends are forgotten, so it stays.
	for broker := 0; broker < options.brokers; broker++ {
		registrar.mustCall(registerBroker, registrationFields(broker), registration(broker, 1))
	}
	onConnections(total, func(i int, c *connection, seen *tally) {
		next := i
		window(c, seen, options.messages/options.conns, func(frames []byte, opaque int) []byte {
			next += options.conns
			fields := ext{"topic", topicNames[next%options.topics]}
			return appendFrame(frames, getRoute, opaque, fields, nil)
		}, func(_, code int, got answer) {
			if code == 0 {
				seen.messages++
			} else {
				seen.refuse(1, got)
			}
		})
	})
	registrar.socket.Close()
}

// register measures the registrations themselves. Each has a newer version of the topics than the
// one before, so that the name server has to look at all of them.
func register(total *tally) {
	bodies := make([][2]string, options.brokers) // around the version
	for broker := range bodies {
		before, after, _ := strings.Cut(string(registration(broker, 0)), `"counter":0`)
		bodies[broker] = [2]string{before + `"counter":`, after}
	}
	onConnections(total, func(i int, c *connection, seen *tally) {
		var body []byte
		broker, version := i, 1
		window(c, seen, options.messages/options.conns, func(frames []byte, opaque int) []byte {
			if broker += options.conns; broker >= options.brokers {
				broker = i
				version++
			}
			body = strconv.AppendInt(append(body[:0], bodies[broker][0]...), int64(version), 10)
			body = append(body, bodies[broker][1]...)
			return appendFrame(frames, registerBroker, opaque, registrationFields(broker), body)
		}, func(_, code int, got answer) {
			if code == 0 {
				seen.messages++
			} else {
				seen.refuse(1, got)
			}
		})
	})
}

func registrationFields(broker int) ext {
	address := fmt.Sprintf("10.1.%d.%d", broker/250, broker%250+1)
	return ext{
		"brokerName", fmt.Sprintf("loadgen-%d", broker), "brokerAddr", address + ":10911",
		"clusterName", "loadgen", "haServerAddr", address + ":10912", "brokerId", "0",
		"compressed", "false", "bodyCrc32", "0",
	}
}

// registration is the body of a broker: a topic's brokers are as far apart as they can be.
func registration(broker, version int) []byte {
	step := max(options.brokers/options.spread, 1)
	var topics []string
	for i, name := range topicNames {
		distance := ((broker-i)%options.brokers + options.brokers) % options.brokers
		if distance%step == 0 && distance/step < options.spread {
			topics = append(topics, fmt.Sprintf(
				`"%s":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,`+
					`"topicFilterType":"SINGLE_TAG","topicName":"%s","topicSysFlag":0,"writeQueueNums":8}`,
				name, name))
		}
	}
	return []byte(fmt.Sprintf(
		`{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":%d,`+
			`"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{%s}}}`,
		version, strings.Join(topics, ",")))
}
