"""Putting many messages of any queues in one go: one copy into the log, one order to flush.

Children of a batch request (issue 6) come as a run of single messages, each for a queue of its own.
Stored one by one each would cost a clock reading, a write into the mapping and a wake of the flush
thread; as a run they share these, as the messages of a put_batch do, and with SYNC_FLUSH they share
one group commit for certain. The records are those that `put` would have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.limits import MAX_PROPERTIES
from pocketmq.message.sysflag import BORN_HOST_V6
from pocketmq.store.encoding.record_encoder import head_packer, head_size, pack_length
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.queue_entry import pack_entries
from pocketmq.store.store_writer import IPV4_HOST, NO_HOSTS, SPECIAL, StoreWriter

#: Bytes of a record that are not its body, in most cases.
_OVERHEAD: Final = 512

#: topic, queue id, body, encoded properties, flag, sysFlag, born timestamp (ms), reconsume times,
#: tags code: the arguments of `StoreWriter.put`. A plain tuple, because one is made per message.
Put = tuple[str, int, ReadableBuffer, str, int, int, int, int, int]

#: Physical offset, size of the record, queue offset: what became of it. Likewise.
Stored = tuple[int, int, int]


class RunWriter(StoreWriter):
    """`put_many`, beside what a `StoreWriter` can do."""

    def put_many(self, puts: Sequence[Put], born_host: bytes) -> list[Stored]:
        """Store the first of these messages, as many as go in one write; one result for each.

        It ends before the first message that needs more than that: a new commit-log or
        consume-queue file, a queue not seen yet, a size to be refused. That one is to be put alone,
        and then the rest; so the list may be empty. All messages that were stored have the same
        store timestamp. `when_flushed` of where the last one ends holds for all of them.
        """
        results: list[Stored] = []
        if self._refusal:
            return results
        by_topic = self._by_topic
        log = self.commit_log
        most_body = self.config.max_message_size
        store_host = self._store_host
        common_flag = self._store_host_flag
        if len(born_host) != IPV4_HOST:
            common_flag |= BORN_HOST_V6
        pack_head = head_packer(common_flag)
        fixed_size = head_size(common_flag)
        timestamp = self._clock()
        try:
            # Else the run is likely to end half-way, and all the rest is looked at twice.
            log.widen(sum([len(put[2]) for put in puts]) + _OVERHEAD * len(puts))
        except OSError:
            return results
        physical = begin = log.end
        stop = begin + log.room
        parts: list[ReadableBuffer] = []
        # For each queue the first offset, and its entries: physical offset, size and tags code of
        # each message, flat.
        entries: dict[ConsumeQueue, tuple[int, list[int]]] = {}
        try:
            for put in puts:
                topic, queue_id, body, properties, flag, sys_flag, born, reconsume_times, code = put
                try:
                    queue = by_topic[topic][queue_id]
                except KeyError:
                    break
                encoded = properties.encode("utf-8", "replace")
                magic, topic_bytes, overhead = queue.topic_field
                body_length = len(body)
                properties_length = len(encoded)
                size = fixed_size + overhead + body_length + properties_length
                queue_offset = queue.next_offset
                end = physical + size
                if (
                    end > stop
                    or queue_offset >= queue.room
                    or body_length > most_body
                    or properties_length > MAX_PROPERTIES
                    or sys_flag & SPECIAL
                    or queue.delayed
                ):
                    break
                parts += (
                    pack_head(
                        size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical,
                        sys_flag & NO_HOSTS | common_flag, born, born_host, timestamp,
                        store_host, reconsume_times, 0, body_length,
                    ),
                    body,
                    topic_bytes,
                    pack_length(properties_length),
                    encoded,
                )  # fmt: skip
                queue.next_offset = queue_offset + 1
                known = entries.get(queue)
                if known is None:
                    entries[queue] = queue_offset, [physical, size, code]
                else:
                    known[1].extend((physical, size, code))
                results.append((physical, size, queue_offset))
                physical = end
        except BaseException:
            # Nothing was written, so no queue may have moved on.
            for queue, (first_offset, _) in entries.items():
                queue.next_offset = first_offset
            raise
        if results:
            log.append(b"".join(parts), timestamp)
            for queue, (first_offset, flat) in entries.items():
                self._arrivals.add(physical, queue, first_offset, pack_entries(flat), timestamp)
            self._put_done()
            self.counters.messages_put += len(results)
            self.counters.bytes_put += physical - begin
        return results
