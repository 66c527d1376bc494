package main

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

const (
	endTransaction = 37

	half   = "4" // system flags
	commit = "8"

	halfProperties = "TRAN_MSG\x01true\x02PGROUP\x01loadgen\x02"
)

// transact sends half messages and commits each when it is answered. A message counts when its
// commit is answered; the latencies are those of both requests.
func transact(total *tally) {
	body := payload(options.size)
	createTopics(sendMessageV2, body)
	onConnections(total, func(i int, c *connection, seen *tally) {
		// The end that the request at each place of the window will be, if it has a half message.
		ends := make([]ext, options.inflight)
		ending := make([]bool, options.inflight)
		queue := i
		window(c, seen, 2*(options.messages/options.conns), func(frames []byte, place int) []byte {
			if ending[place] = ends[place] != nil; ending[place] {
				end := ends[place]
				ends[place] = nil
				return appendFrame(frames, endTransaction, place, end, nil)
			}
			queue = (queue + 1) % options.queues
			fields := sendFields(options.topic, queue, halfProperties).with("f", half)
			return appendFrame(frames, sendMessageV2, place, fields, body)
		}, func(place, code int, got answer) {
			switch {
			case code != 0:
				seen.refuse(1, got)
			case ending[place]:
				seen.messages++
			default:
				ends[place] = commitOf(got)
			}
		})
	})
}

// commitOf are the fields that commit the half message of an answer.
func commitOf(got answer) ext {
	_, values := got.fields()
	// An offset message id is the host, a port of four bytes, and the physical offset.
	id, err := hex.DecodeString(values["msgId"])
	if err != nil || len(id) < 16 {
		fail("%q is no offset message id", values["msgId"])
	}
	at := binary.BigEndian.Uint64(id[len(id)-8:])
	return ext{
		"topic", options.topic, "producerGroup", "loadgen",
		"tranStateTableOffset", values["queueOffset"],
		"commitLogOffset", strconv.FormatUint(at, 10), "commitOrRollback", commit,
		"fromTransactionCheck", "false", "msgId", uniqueKey, "transactionId", uniqueKey,
	}
}
