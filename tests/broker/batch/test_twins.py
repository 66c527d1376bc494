"""Whatever a batch contains, its answers are those of the same requests sent one by one.

Two brokers begin alike and are told the same: one by batches, its twin by single requests in the
order of the batch. After each step the answers are compared, and what both have stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.store.config import FlushDiskType
from tests.broker.batch.batches import Child, batch, held, pull, send
from tests.broker.conftest import Client
from tests.remoting.peers import RawPeer

T = TypeVar("T")

TOPICS = st.sampled_from(["A", "A", "A", "A", "B", "B", "New", "bad topic", "Missing"])
QUEUES = st.sampled_from([0, 0, 0, 1, 2, 3, -1, 5])
KINDS = st.integers(0, 1)
PROPERTIES = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "WAIT", "UNIQ_KEY", "DELAY", "k"]),
    st.sampled_from(["a", "b", "false", "true", "18", "0"]),  # level 18 is due in two hours
)
LATER = [str(int(time.time()) * 1_000 + 3_600_000 + more) for more in (0, 1, 1_000)]
FOREIGN = int(RequestCode.GET_MAX_OFFSET)


@st.composite
def sends(draw: st.DrawFn) -> Child:
    topic = draw(TOPICS)
    # A queue of the broker's own choice would not be the same twice.
    queue_id = draw(QUEUES.filter(lambda number: number >= 0))
    return send(
        topic,
        draw(st.binary(max_size=40)),
        code=draw(st.sampled_from([310] * 8 + [10, 10, 320])),
        queue_id=queue_id,
        default_topic="" if topic == "Missing" else "TBW102",
        properties={"UNIQ_KEY": "U", **draw(PROPERTIES)},
        sys_flag=draw(st.sampled_from([0] * 8 + [4, 8])),
        flag=draw(st.integers(-5, 5)),
        serialize_type=draw(KINDS),
    )


@st.composite
def delayed(draw: st.DrawFn) -> Child:
    """Always late, where `sends` makes any property of anything."""
    properties = {"UNIQ_KEY": "U", "DELAY": draw(st.sampled_from(["1", "2"]))}
    return send(draw(TOPICS), b"late", code=draw(st.sampled_from([10, 310])), properties=properties)


@st.composite
def waiting(draw: st.DrawFn) -> Child:
    """What waits first: until a time, which does not come meanwhile, or for the end of its
    transaction."""
    timed = {"TIMER_DELIVER_MS": draw(st.sampled_from(LATER))}
    properties = draw(
        st.sampled_from(
            [
                timed,
                {**timed, "TIMER_DEL_UNIQKEY": "A+U"},
                {**timed, "DELAY": "2"},
                {"TIMER_DELIVER_MS": "soon"},
                {"TRAN_MSG": "true", "PGROUP": "P"},
                {"TRAN_MSG": "true", **timed},
            ]
        )
    )
    return send(
        draw(TOPICS),
        b"waits",
        code=draw(st.sampled_from([10, 310])),
        properties={"UNIQ_KEY": "U", **properties},
        sys_flag=draw(st.sampled_from([0, 4])),
        serialize_type=draw(KINDS),
    )


@st.composite
def batches(draw: st.DrawFn) -> Child:
    """Many messages in one send; or what only says that it is that."""
    messages = st.tuples(st.integers(0, 5), st.binary(max_size=20), st.just(b"UNIQ_KEY\x01M\x02"))
    body = encode_batch(draw(st.lists(messages, max_size=5)))
    return send(
        draw(TOPICS),
        draw(st.just(body) | st.binary(max_size=40)),
        code=320,
        queue_id=draw(st.integers(0, 5)),
        batch=True,
        properties=draw(st.sampled_from([{"UNIQ_KEY": "U"}, {"UNIQ_KEY": "U", "DELAY": "1"}])),
        serialize_type=draw(KINDS),
    )


@st.composite
def unfit(draw: st.DrawFn, code: int) -> Child:
    """A child that no parent of `code` executes: of a foreign code, or without what it needs."""
    kind = draw(KINDS)
    if draw(st.booleans()):
        return Child(FOREIGN, GetMaxOffsetRequestHeader(topic="A", queue_id=0), serialize_type=kind)
    return Child(code, None, b"body", {"topic": "A", "b": "A"}, serialize_type=kind)


@st.composite
def pulls(draw: st.DrawFn) -> Child:
    return pull(
        draw(TOPICS),
        draw(st.integers(0, 6)),
        queue_id=draw(QUEUES),
        code=draw(st.sampled_from([11, 11, 361])),
        max_msg_nums=draw(st.integers(0, 4)),
        subscription=draw(st.sampled_from(["*", "a", "a || b", "nobody"])),
        serialize_type=draw(KINDS),
        # Held for no time at all: also what waits is answered, and equally.
        hold=draw(st.sampled_from([0, 0, 1])),
    )


@st.composite
def offsets(draw: st.DrawFn) -> Child:
    topic, queue_id, kind = draw(TOPICS), draw(st.integers(0, 3)), draw(KINDS)
    which = draw(st.sampled_from([14, 15, 30]))
    if which == 30:
        header: Any = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    elif which == 14:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group="G", topic=topic, queue_id=queue_id
        )
    else:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="G",
            topic=topic,
            queue_id=queue_id,
            commit_offset=draw(st.integers(0, 9)),
        )
    return Child(which, header, serialize_type=kind)


def shown(answer: Command) -> tuple[Any, ...]:
    """An answer without what differs between two brokers: their address and their clocks."""
    ext = {k: v for k, v in answer.ext_fields.items() if k != "msgId"}
    ids = [text[16:] for text in answer.ext_fields.get("msgId", "").split(",")]
    records: Any = bytes(answer.body)
    if "nextBeginOffset" in ext:
        records = [
            (r.topic, r.queue_id, r.queue_offset, r.physical_offset, bytes(r.body), r.flag,
             r.sys_flag, r.properties)
            for r in iter_records(answer.body)
        ]  # fmt: skip
    return answer.code, answer.serialize_type, answer.remark, ext, ids, records


class Twins(RuleBasedStateMachine):
    flush = FlushDiskType.ASYNC_FLUSH

    def __init__(self) -> None:
        super().__init__()
        # Whatever fails on the way, `teardown` finds these, and does not hide it by an error of
        # its own.
        self.runner = asyncio.Runner()
        self.open = contextlib.AsyncExitStack()
        self.brokers: list[Broker] = []
        self.client = Client()  # of the first broker
        self.single: SingleRequests  # of the second one

    @initialize()
    def begin(self) -> None:
        self.run(self.start())

    def run(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(30):
                return await work

        return self.runner.run(bounded())

    async def start(self) -> None:
        directory = self.open.enter_context(tempfile.TemporaryDirectory(prefix="twins-"))
        for name in ("batched", "single"):
            config = BrokerConfig(
                store_path_root_dir=str(Path(directory) / name),
                broker_name="b0",
                listen_port=0,
                vip_channel_enable=False,
                flush_disk_type=self.flush,
                mapped_file_size_commit_log=1 << 14,  # new files within a batch
                mapped_file_size_consume_queue=200,
                max_message_size=4096,
                message_delay_level="1h 2h",  # nothing becomes due meanwhile
                metrics_exporter_type="LOG",  # so that messages are counted by type
            )
            self.brokers.append(await self.open.enter_async_context(Broker(config)))
        batched, single = self.brokers
        await self.client.open(batched.address)
        self.open.push_async_callback(self.client.close)
        self.single = await SingleRequests.open(single.port)
        self.open.push_async_callback(self.single.close)
        for topic in ("A", "B"):
            child = send(topic, properties={"UNIQ_KEY": "U"})
            assert [answer.code for answer in await batch(self.client, [child])] == [0]
            assert [answer.code for answer in await self.single.ask([child])] == [0]

    def teardown(self) -> None:
        try:
            self.run(self.open.aclose())
        finally:
            self.runner.close()

    async def both(self, children: list[Child], code: int) -> None:
        together = await batch(self.client, children, code=code)
        alone = await self.single.ask(children)
        for child, one, other in zip(children, together, alone, strict=True):
            if child.code == FOREIGN != code:
                assert (one.code, one.remark) == foreign_to(code)
            else:
                assert shown(one) == shown(other), child

    @rule(
        children=st.lists(
            sends() | sends() | delayed() | waiting() | batches() | unfit(310),
            min_size=1,
            max_size=30,
        )
    )
    def send(self, children: list[Child]) -> None:
        self.run(self.both(children, 310))

    @rule(children=st.lists(offsets(), min_size=1, max_size=20))
    def offsets(self, children: list[Child]) -> None:
        code = children[0].code
        self.run(self.both([child for child in children if child.code == code], code))

    @rule(children=st.lists(pulls() | pulls() | unfit(11), min_size=1, max_size=20))
    def pull(self, children: list[Child]) -> None:
        """None is held here, so every child is answered by itself."""
        children = [pull_without_wait(child) for child in children]
        self.run(self.both(children, RequestCode.PULL_MESSAGE))

    @rule(children=st.lists(pulls() | pulls() | unfit(11), min_size=1, max_size=20))
    def pull_waiting(self, children: list[Child]) -> None:
        """With waiting children the answers are those of a moment: each is the single one's, or
        "not found" in the batch's own words where the single pull waited."""

        async def compare() -> None:
            together = await batch(self.client, children, code=RequestCode.PULL_MESSAGE)
            alone = await self.single.ask(children)
            for child, one, other in zip(children, together, alone, strict=True):
                if child.code == FOREIGN:
                    assert (one.code, one.remark) == foreign_to(11)
                elif one.code == 19 and not one.ext_fields:
                    assert other.code == 19, child
                else:
                    assert shown(one) == shown(other), child

        self.run(compare())

    @invariant()
    def nothing_is_left(self) -> None:
        assert [held(broker) for broker in self.brokers] == [0, 0]
        assert [broker.components.sends.unflushed.count for broker in self.brokers] == [0, 0]

    @invariant()
    def the_stores_are_equal(self) -> None:
        one, other = (broker.store for broker in self.brokers)
        assert one.commit_log.end == other.commit_log.end
        assert one.counters.messages_put == other.counters.messages_put
        if one.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            # A send that does not wait for the disk is answered before its message has an entry.
            assert self.run(one.all_flushed())
            assert self.run(other.all_flushed())
        assert entries_of(one) == entries_of(other)
        one_put, other_put = (broker.tables.statistics.put for broker in self.brokers)
        assert (one_put.messages, one_put.times, one_put.size) == (
            other_put.messages, other_put.times, other_put.size,
        )  # fmt: skip
        counts, others = (counts_of(broker.tables.statistics) for broker in self.brokers)
        assert counts == others


def counts_of(statistics: Statistics) -> Any:
    """What was put, by topic and type, and the transactions that are not ended."""
    return statistics.transactions.pending, {
        topic: (
            traffic.messages,
            traffic.size,
            sorted(statistics.types_of(topic).split(traffic.messages, traffic.size)),
        )
        for topic, traffic in statistics.topic_put.items()
    }


def entries_of(store: Any) -> dict[tuple[str, int], list[Any]]:
    """Every entry of every queue: where the message is, its size, and its tags code (but of
    delayed messages, since that is when they are due)."""
    return {
        (topic, number): [
            queue.entry(offset)[: 2 if queue.delayed else 3] for offset in range(queue.max_offset)
        ]
        for topic, queues in store.queues.items()
        for number, queue in queues.items()
    }


def pull_without_wait(child: Child) -> Child:
    if isinstance(child.header, PullMessageRequestHeader):
        child.header.sys_flag &= ~2
    return child


def foreign_to(code: int) -> tuple[int, str]:
    """The answer's code and remark of what cannot go with `code`."""
    return ResponseCode.SYSTEM_ERROR, f"request code {FOREIGN} in a batch of {code:d}"


class SingleRequests:
    """A connection that sends children as requests of their own, each in its own serialization."""

    def __init__(self, peer: RawPeer) -> None:
        self._peer = peer

    @classmethod
    async def open(cls, port: int) -> SingleRequests:
        return cls(await RawPeer.open(port))

    async def close(self) -> None:
        await self._peer.close()

    async def ask(self, children: Sequence[Child]) -> list[Command]:
        """The answers in the order of the children. Each is asked for when the one before it is
        answered: requests that come in one read may be executed together, too."""
        answers = []
        for opaque, child in enumerate(children):
            self._peer.send(child.frame(opaque))
            answers.append(await self._peer.read())
        return answers


class SyncFlushTwins(Twins):
    flush = FlushDiskType.SYNC_FLUSH


# Without shrinking: each example starts two brokers, and a failure would take half an hour.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.target]
TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, phases=PHASES)
TestSyncFlushTwins = SyncFlushTwins.TestCase
TestSyncFlushTwins.settings = settings(
    max_examples=5, stateful_step_count=10, deadline=None, phases=PHASES
)
