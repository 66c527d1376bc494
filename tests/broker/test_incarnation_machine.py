"""Late work against a model, while topics are created, changed and deleted, and brokers die.

No message of a deleted topic is stored in one of its name, or handed out. Nothing is stored in a
queue that cannot be read. What was accepted for a topic that is still there is delivered.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import CreateTopicRequestHeader, EndTransactionRequestHeader
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient, Popped, passes
from tests.fake_time import FakeTime

T = TypeVar("T")

TOPICS = st.just("A")
GROUP = "G"
COMMIT, ROLLBACK = 8, 12
MOST_QUEUES = 3
INVISIBLE_MS = 10_000
SPARE_MS = 1_500  # before that an acknowledgement is surely in time
LONGEST_MS = 30_000  # that a message waits
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "delayed": {"DELAY": "2"},
    "timed": {"TIMER_DELAY_SEC": "7"},
    "rolled": {"TIMER_DELAY_SEC": "25"},
}


class Half(NamedTuple):
    topic: str
    incarnation: int
    body: bytes
    queue_offset: int
    physical_offset: int


class Held(NamedTuple):
    topic: str
    incarnation: int
    message: Popped


class IncarnationMachine(RuleBasedStateMachine):
    """The model: which topics exist, as which incarnation, and what they were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="incarnations-"))
        self.lives = 0
        self.time = FakeTime()
        self.incarnations = {"A": 0}
        self.queues: dict[str, int] = {}  # of those that exist
        self.sent: dict[str, set[bytes]] = {}
        self.acknowledged: set[bytes] = set()
        self.done: set[bytes] = set()  # acknowledged in time, and no kill since
        self.hidden: dict[str, set[bytes]] = {}  # what lay in queues that a topic lost
        self.number = 0
        self.halves: list[Half] = []
        self.held: list[Held] = []
        self.run(self.start(self.directory / "0"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def start(self, root: Path) -> None:
        self.root = root
        config = BrokerConfig(
            store_path_root_dir=str(root),
            broker_name="b0",
            listen_port=0,
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20_000,
            timer_roll_window_slot=10,
            transaction_check_interval=3_600_000,
        )
        self.broker = Broker(config, clock=self.time.clock, call_later=self.time.call_later)
        await self.broker.start()
        self.client = Client()
        await self.client.open(self.broker.address)

    async def stop(self) -> None:
        await self.client.close()
        await self.broker.stop()

    # --- topics -------------------------------------------------------------------------------

    @initialize()
    def begins(self) -> None:
        for topic in self.incarnations:
            self.is_created_or_changed(topic, MOST_QUEUES)

    @rule(topic=TOPICS)
    def is_created_again(self, topic: str) -> None:
        self.is_deleted(topic)
        self.is_created_or_changed(topic, MOST_QUEUES)

    @rule(topic=TOPICS, queues=st.sampled_from([1, 2, MOST_QUEUES]))
    def is_created_or_changed(self, topic: str, queues: int) -> None:
        if topic not in self.queues:
            self.time.advance(1)  # what was popped before is older
            self.incarnations[topic] += 1
            self.sent[topic] = set()
        self.run(self.create(topic, queues))
        self.queues[topic] = queues
        self.hidden[topic] = {body for queue_id, body in self.stored(topic) if queue_id >= queues}

    async def create(self, topic: str, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        answer = await self.client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == 0, answer.remark

    @rule(topic=TOPICS)
    def is_deleted(self, topic: str) -> None:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        answer = self.run(self.client.request(code, ext_fields={"topic": topic}))
        assert answer.code == 0, answer.remark
        self.queues.pop(topic, None)
        self.sent.pop(topic, None)
        self.hidden.pop(topic, None)

    # --- messages -----------------------------------------------------------------------------

    def body_for(self, topic: str) -> bytes:
        self.number += 1
        return b"%s-%d-%d" % (topic.encode(), self.incarnations[topic], self.number)

    @rule(topic=TOPICS, kind=st.sampled_from(sorted(KINDS)))
    def are_sent(self, topic: str, kind: str) -> None:
        for queue_id in range(self.queues.get(topic, 0)):
            body = self.body_for(topic)
            sending = self.client.send(topic, body, queue_id=queue_id, properties=KINDS[kind])
            answer = self.run(sending)
            assert answer.code == 0, answer.remark
            self.sent[topic].add(body)

    @rule(topic=TOPICS, queue=st.integers(0, 2))
    def is_begun(self, topic: str, queue: int) -> None:
        if topic not in self.queues:
            return
        body = self.body_for(topic)
        properties = {"TRAN_MSG": "true", "PGROUP": "PG"}
        queue_id = queue % self.queues[topic]
        sending = self.client.send(
            topic, body, queue_id=queue_id, properties=properties, sys_flag=4
        )
        answer = self.run(sending)
        assert answer.code == 0, answer.remark
        place = int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16)
        self.halves.append(Half(topic, self.incarnations[topic], body, *place))

    @rule(n=st.integers(0, 9), how=st.sampled_from([COMMIT, ROLLBACK]))
    def is_ended(self, n: int, how: int) -> None:
        if not self.halves:
            return
        half = self.halves.pop(n % len(self.halves))
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=how,
            msg_id="U",
        )
        answer = self.run(self.client.request(RequestCode.END_TRANSACTION, header))
        if how == ROLLBACK:
            assert answer.code == 0, answer.remark
        elif self.is_there(half.topic, half.incarnation):
            assert answer.code == 0, answer.remark
            self.sent[half.topic].add(half.body)
        else:
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    # --- pops ---------------------------------------------------------------------------------

    @rule(topic=TOPICS)
    def is_popped(self, topic: str) -> None:
        if topic in self.queues:
            self.run(self.pop(topic))

    async def pop(self, topic: str) -> None:
        pops = PopClient(self.client, topic, GROUP)
        for message in await pops.pop(invisible_time=INVISIBLE_MS):
            self.check(topic, message.body)
            assert message.body not in self.done
            self.held.append(Held(topic, self.incarnations[topic], message))

    @rule(n=st.integers(0, 9))
    def is_acknowledged(self, n: int) -> None:
        if self.held:
            self.run(self.acknowledge(self.held.pop(n % len(self.held))))

    async def acknowledge(self, held: Held) -> None:
        answer = await PopClient(self.client, held.topic, GROUP).ack(held.message)
        if answer.code == 0 and self.is_there(held.topic, held.incarnation):
            self.acknowledged.add(held.message.body)
            if self.time.now < held.message.handle.pop_time + INVISIBLE_MS - SPARE_MS:
                self.done.add(held.message.body)

    @rule(n=st.integers(0, 9))
    def is_given_back(self, n: int) -> None:
        if not self.held:
            return
        held = self.held.pop(n % len(self.held))
        if self.is_there(held.topic, held.incarnation) and (
            held.message.handle.queue_id < self.queues[held.topic]
        ):
            self.run(PopClient(self.client, held.topic, GROUP).change(held.message, 1_000))

    # --- time and ends ------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 1_000, 6_000, 15_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.run(passes(self.time, milliseconds))

    @rule(killed=st.booleans())
    def ends(self, killed: bool) -> None:
        if not killed:
            self.run(self.stop())
            self.run(self.start(self.root))
            return
        self.done.clear()
        self.lives += 1
        left = shutil.copytree(self.root, self.directory / str(self.lives))
        self.run(self.stop())
        self.run(self.start(left))

    # --- what must hold -----------------------------------------------------------------------

    def is_there(self, topic: str, incarnation: int) -> bool:
        return topic in self.queues and self.incarnations[topic] == incarnation

    def check(self, topic: str, body: bytes) -> None:
        name, incarnation, _ = body.split(b"-")
        assert (name.decode(), int(incarnation)) == (topic, self.incarnations[topic])

    def stored(self, topic: str) -> Iterator[tuple[int, bytes]]:
        store = self.broker.store
        for queue_id in list(store.queues.get(topic, {})):
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                found = store.get(topic, queue_id, offset, 32)
                for buffer in found.buffers:
                    for record in iter_records(buffer):
                        yield queue_id, bytes(record.body)
                offset = max(found.next_begin_offset, offset + 1)

    @invariant()
    def only_this_incarnation(self) -> None:
        for topic in self.incarnations:
            config = self.broker.tables.topics.get(topic)
            assert (config is not None) == (topic in self.queues)
            stored = list(self.stored(topic))
            if config is None:
                assert not stored
                continue
            assert config.read_queue_nums == self.queues[topic]
            for queue_id, body in stored:
                self.check(topic, body)
                assert queue_id < self.queues[topic] or body in self.hidden[topic]

    def teardown(self) -> None:
        try:
            self.run(passes(self.time, LONGEST_MS + 10_000))
            self.only_this_incarnation()
            for topic in self.queues:
                assert self.sent[topic] <= {body for _, body in self.stored(topic)}
                self.run(self.drain(topic))
        finally:
            self.run(self.stop())
            self.runner.close()
            shutil.rmtree(self.directory)

    async def drain(self, topic: str) -> None:
        """Every message that can be read and is not acknowledged is handed out."""
        owed = self.sent[topic] - self.acknowledged - self.hidden[topic]
        for _ in range(5):
            self.held.clear()
            await self.pop(topic)
            while self.held:
                held = self.held.pop()
                owed.discard(held.message.body)
                await self.acknowledge(held)
            await passes(self.time, INVISIBLE_MS)
        assert not owed


TestIncarnationMachine = IncarnationMachine.TestCase
TestIncarnationMachine.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],
)
