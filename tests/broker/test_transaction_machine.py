"""Transactions against a model: whatever their producers say, and whenever the broker dies.

A commit stores the message once, and an ended transaction cannot be ended again. Nobody is asked
about a transaction that is ended or too young, and everybody about one that is neither, until it is
given up. Nobody is asked twice in a round, unless the round takes longer than the interval. A crash
may only bring back questions whose answers were not on the disk yet.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.processors.send.end_transaction import EndTransactionProcessor
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.consumer_groups import ClientInfo
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.transactions.checks import GROUP, TransactionChecks
from pocketmq.broker.transactions.half_message import HalfMessageHook
from pocketmq.broker.transactions.ops import Ops
from pocketmq.message.limits import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.message.record import Record, decode, iter_records
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import EndTransactionRequestHeader
from pocketmq.remoting.monotonic import monotonic_ms
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from tests.fast_files import FastFiles

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
TOPICS = ["T", "U"]
COMMIT, ROLLBACK = 8, 12
TIMEOUT, INTERVAL, CHECK_MAX = 6_000, 30_000, 3


class Transaction:
    """What a producer knows of one, and what the model expects."""

    def __init__(self, number: int, born: int, immunity: int | None) -> None:
        self.body = b"%d" % number
        self.born = born
        self.immunity = TIMEOUT if immunity is None else immunity
        self.places: list[tuple[int, int]] = []
        self.commits = 0
        self.ended = False
        self.op_lost = False  # ended, but the broker died before it was written
        self.times_asked = 0
        self.given_up = False


class ProducerConnection:
    """A connection that keeps what the broker asks."""

    closed = False
    writable = True
    peer = ("127.0.0.1", 1)

    def __init__(self, clock: Callable[[], int]) -> None:
        self.asked: list[tuple[int, Any, Record]] = []
        self._clock = clock

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        pass

    def send_oneway(self, code: int, header: Any, body: bytes) -> None:
        self.asked.append((self._clock(), header, decode(body)))


class TransactionMachine(RuleBasedStateMachine):
    transactions: Bundle[Transaction] = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.lives = 0
        self.now = 1_700_000_000_000
        self.all: dict[bytes, Transaction] = {}
        self.crashed = False
        self.under_way: Coroutine[Any, Any, None] | None = None
        self.asked_at: dict[bytes, int] = {}  # in the round that is under way
        self.given_up = 0  # messages that were read
        self.open(self.directory / "0")

    def clock(self) -> int:
        self.now += 1
        return self.now

    def open(self, root: Path) -> None:
        config = BrokerConfig(
            store_path_root_dir=str(root),
            broker_name="b0",
            mapped_file_size_commit_log=1 << 14,
            mapped_file_size_consume_queue=200,
            transaction_check_max=CHECK_MAX,
            transaction_check_interval=INTERVAL,
        )
        self.root = root
        directory = root / "config"
        directory.mkdir(parents=True, exist_ok=True)
        clock = self.clock
        self.store = MessageStore(config, store_host=HOST, files=FastFiles(), clock=clock)
        self.store.open()
        self.offsets = ConsumerOffsets(directory / "consumerOffset.json", clock)
        self.offsets.load()
        put_hooks = self.put_hooks = PutHooks(self.store)
        put_hooks.hooks.append(HalfMessageHook(config))
        self.connection = ProducerConnection(clock)
        producers = ProducerGroups(monotonic_ms)
        producers.register("PG", ClientInfo(self.connection, "p", "JAVA", 479, monotonic_ms()))
        topics = TopicConfigs(config, directory / "topics.json", clock, lambda names: None)
        self.ops = Ops(self.store, put_hooks, HOST, clock, 12)
        statistics = Statistics("c0", clock)
        self.checks = TransactionChecks(
            config,
            self.store,
            put_hooks,
            self.ops,
            topics,
            producers,
            self.offsets,
            HOST,
            clock,
            statistics.transactions,
        )
        self.checks.load()
        self.ends = EndTransactionProcessor(
            config,
            self.store,
            put_hooks,
            self.ops,
            statistics,
            UnwrittenSends(config, self.store, HOST),
            PutSafety(self.store),
            clock,
        )

    # --- what happens -------------------------------------------------------------------------

    @rule(
        target=transactions,
        topic=st.sampled_from(TOPICS),
        immunity=st.sampled_from([None, None, None, 20, 90]),
    )
    def begin(self, topic: str, immunity: int | None) -> Transaction:
        new = Transaction(len(self.all), self.clock(), immunity and immunity * 1000)
        properties = {"TRAN_MSG": "true", "PGROUP": "PG"}
        if immunity is not None:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity)
        result = self.put_hooks.put(
            InnerMessage(topic, 0, new.body, properties, new.born, HOST, sys_flag=4)
        )
        new.places.append((result.queue_offset, result.physical_offset))
        self.all[new.body] = new
        return new

    @rule(
        ended=st.one_of(transactions, consumes(transactions)),
        which=st.integers(0, 3),
        how=st.sampled_from([COMMIT, ROLLBACK]),
    )
    def end(self, ended: Transaction, which: int, how: int) -> None:
        """By any place that the producer was ever told, also a second time."""
        queue_offset, physical_offset = ended.places[which % len(ended.places)]
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=how,
            msg_id="U",
            from_transaction_check=True,
        )
        try:
            response = self.ends.end(Request(37, header))
        except RemotingError as refusal:
            response = Response(refusal.code, refusal.remark)
        assert response is not None
        if ended.ended and not ended.op_lost:
            assert response.code == ResponseCode.SYSTEM_ERROR
            return
        if ended.given_up and (not self.crashed or response.code):
            # A crash may take the broker back to before it gave up.
            assert response.code == ResponseCode.SYSTEM_ERROR
            return
        assert response.code == 0, response.remark
        ended.commits += how == COMMIT
        ended.ended = True
        ended.op_lost = False

    @rule(seconds=st.sampled_from([1, 5, 30, 60]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000

    @rule()
    def ops_are_written(self) -> None:
        self.ops.write()

    @rule()
    def offsets_are_written(self) -> None:
        self.offsets.save()

    @rule()
    def check(self) -> None:
        self.round()

    @rule()
    def check_when_all_are_old(self) -> None:
        """Then a round reaches everything."""
        self.now += 100_000
        open_before = {t.body for t in self.all.values() if not t.ended and not t.given_up}
        asked = self.round()
        given_up = {body for body in open_before if self.all[body].given_up}
        assert open_before <= asked | given_up
        assert not asked & given_up

    @rule(steps=st.integers(1, 8), refused=st.booleans())
    def a_round_goes_on(self, steps: int, refused: bool) -> None:
        """Or begins. The rest of it comes later, and the store may refuse it."""
        if refused:
            self.store.refuse("the disk is full")
        self.go_on(steps)
        self.store.accept()

    def go_on(self, most: int | None = None) -> set[bytes]:
        """Go on with a round, to its end if no number of steps is given; return who was asked."""
        if self.under_way is None:
            self.asked_at.clear()
            self.under_way = self.checks.check()
        try:
            while most is None or most:
                self.under_way.send(None)
                most = most and most - 1
        except StopIteration:
            self.under_way = None
        return self.what_was_asked()

    def round(self) -> set[bytes]:
        if self.under_way is not None:
            self.go_on()
        return self.go_on()

    def what_was_asked(self) -> set[bytes]:
        asked = set()
        for now, header, half in self.connection.asked:
            body = bytes(half.body)
            asked.add(body)
            about = self.all[body]
            assert not about.ended or about.op_lost
            assert now - about.born >= about.immunity
            assert now - self.asked_at.get(body, 0) >= INTERVAL
            self.asked_at[body] = now
            about.places.append((header.tran_state_table_offset, header.commit_log_offset))
            about.times_asked += 1
            if not self.crashed:
                assert half.properties["TRANSACTION_CHECK_TIMES"] == str(about.times_asked)
                assert about.times_asked <= CHECK_MAX
        self.connection.asked.clear()
        given_up = self.read(TRANS_CHECK_MAX_TIME_TOPIC)
        for record in given_up[self.given_up :]:
            about = self.all[bytes(record.body)]
            assert not about.ended or about.op_lost
            assert not about.given_up or self.crashed
            assert self.crashed or about.times_asked == CHECK_MAX
            about.given_up = True
        self.given_up = len(given_up)
        return asked

    # --- brokers come and go ------------------------------------------------------------------

    def end_of_life(self) -> None:
        if self.under_way is not None:
            self.under_way.close()
            self.under_way = None

    @rule()
    def restart(self) -> None:
        self.end_of_life()
        self.ops.write()
        self.offsets.save()
        asyncio.run(self.store.close())
        self.open(self.root)

    @rule()
    def crash(self) -> None:
        """Whatever was not written into a file is gone."""
        self.end_of_life()
        written = {offset for op in self.read(OP_HALF_TOPIC)
                   for offset in bytes(op.body).decode().split(",") if offset}  # fmt: skip
        for one in self.all.values():
            ended = {str(queue_offset) for queue_offset, _ in one.places} & written
            one.op_lost = one.ended and not ended
        self.crashed = True
        self.lives += 1
        root = self.directory / str(self.lives)
        shutil.copytree(self.root, root)
        (root / "lock").unlink(missing_ok=True)
        abandoned = self.store
        self.open(root)
        self.given_up = len(self.read(TRANS_CHECK_MAX_TIME_TOPIC))
        asyncio.run(abandoned.close())

    # --- what holds ---------------------------------------------------------------------------

    def read(self, topic: str) -> list[Record]:
        found: list[Record] = []
        offset = self.store.min_offset(topic, 0)
        while offset < self.store.max_offset(topic, 0):
            result = self.store.get(topic, 0, offset, 1000)
            for buffer in result.buffers:
                found += iter_records(buffer)
            offset = result.next_begin_offset
        return found

    @invariant()
    def commits_are_stored_once_each(self) -> None:
        stored = Counter(bytes(record.body) for topic in TOPICS for record in self.read(topic))
        assert stored == Counter({t.body: t.commits for t in self.all.values() if t.commits})

    @invariant()
    def positions_are_within_their_queues(self) -> None:
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            offset = self.offsets.query(GROUP, topic, 0)
            assert offset <= self.store.max_offset(topic, 0)

    def teardown(self) -> None:
        """In the end all is asked about or given up, and nothing is kept in memory."""
        self.round()
        for _ in range(CHECK_MAX + 2):
            self.check_when_all_are_old()
        assert all(t.ended or t.given_up for t in self.all.values())
        assert self.round() == set()
        assert not self.ops.ended
        assert not self.ops.checked
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            if self.all and self.read(topic):
                assert self.offsets.query(GROUP, topic, 0) == self.store.max_offset(topic, 0)
        asyncio.run(self.store.close())
        shutil.rmtree(self.directory)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
