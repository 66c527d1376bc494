"""Long polls against a model, over a real store: no message is missed, every poll is answered once,
and at the latest at its deadline.

Time is that of a virtual loop. What a client sends in one write is executed in one turn of the
loop, so that appends are settled while polls are executed.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pocketmq.broker.components import Components
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.tables import Tables
from pocketmq.message import properties as names
from pocketmq.message.buffers import Buffer
from pocketmq.message.record import iter_records
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import BatchRequestHeader
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response
from pocketmq.store.message_store import MessageStore
from tests.broker.batch.batches import PULL, Child, body_of, pull
from tests.broker.virtual_loop import VirtualRunner
from tests.fast_files import FastFiles

TOPIC = "T"
QUEUES = 2
START = 1_700_000_000_000
FOUND, NOT_FOUND, RETRY = 0, 19, 20
#: Seconds: a poll may end one bucket late.
LATE = 0.11
EARLY = 0.003


@dataclass(frozen=True)
class Message:
    """What filters look at."""

    tag: str
    a: int


@dataclass(frozen=True)
class Sends:
    """Messages that are appended to one queue, and not settled."""

    queue_id: int
    messages: tuple[Message, ...]


#: What a poll wants: the fields of its header, and the same for the model.
WANTED: dict[str, tuple[dict[str, Any], Callable[[Message], bool]]] = {
    "plain": ({}, lambda message: True),
    "tag": ({"subscription": "A"}, lambda message: message.tag == "A"),
    "sql": (
        {"subscription": "a > 5", "expression_type": "SQL92"},
        lambda message: message.a > 5,
    ),
}


@dataclass(frozen=True)
class Poll:
    """A long poll for what comes after, or for the last `back` messages as well."""

    kind: str
    queue_id: int
    back: int
    hold: int


@dataclass(frozen=True)
class Parent:
    """Polls that wait together."""

    children: tuple[Poll, ...]
    omit: bool


@dataclass(eq=False)
class Asked:
    """A request that was sent: its polls with the offsets they begin at."""

    polls: list[tuple[Poll, int]]
    at: float
    parent: bool = False
    answers: list[Command] = field(default_factory=list)
    answered_at: float = 0.0

    @property
    def deadline(self) -> float:
        return self.at + min(poll.hold for poll, _ in self.polls) / 1000


class Client:
    """A connection that keeps the answers it gets."""

    peer = ("127.0.0.1", 1)
    peer_packed = bytes(8)
    writable = True
    overloaded = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.closed = False
        self.clock = clock
        self.attributes: dict[str, Any] = {}
        self.asked: list[Asked] = []
        self.sent: dict[int, Asked] = {}
        self._on_close: list[Callable[[Any], None]] = []

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        self._on_close.append(callback)

    def respond(self, request: Request[Any], response: Response) -> None:
        body: list[Buffer] = []
        if response.length:
            response.add_body(body)
        answer = Command(response.code, opaque=request.opaque, body=b"".join(body))
        asked = self.sent[request.opaque]
        asked.answers.append(answer)
        asked.answered_at = self.clock()

    def refuse(self, request: Request[Any]) -> Response:
        raise AssertionError("it is never overloaded")

    def spawn(
        self,
        request: Request[Any],
        result: Awaitable[Response | None],
        *,
        counted: bool = True,
    ) -> None:
        raise AssertionError("a pull needs no task")

    def close(self) -> None:
        self.closed = True
        for callback in self._on_close:
            callback(self)


queue_ids = st.integers(0, QUEUES - 1)
messages = st.builds(Message, st.sampled_from("AB"), st.integers(4, 7))
sends = st.builds(
    Sends, queue_ids, st.lists(messages, min_size=1, max_size=4).map(tuple[Message, ...])
)
polls = st.builds(
    Poll,
    st.sampled_from(sorted(WANTED)),
    queue_ids,
    st.sampled_from([0, 0, 0, 0, 1, 3]),
    st.sampled_from([50, 1_000, 7_000, 20_000]),
)
parents = st.builds(
    Parent, st.lists(polls, min_size=1, max_size=6).map(tuple[Poll, ...]), st.booleans()
)


class HoldMachine(RuleBasedStateMachine):
    """The model: what is in the queues, and what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = VirtualRunner()
        self.root = Path(tempfile.mkdtemp(prefix="holds-"))
        self.queues: list[list[Message]] = [[] for _ in range(QUEUES)]
        self.opaque = 1_000
        self.clients = [self.client() for _ in range(3)]
        self.runner.run(self.open())

    async def open(self) -> None:
        config = BrokerConfig(
            store_path_root_dir=str(self.root),
            broker_name="b0",
            mapped_file_size_commit_log=1 << 18,
            mapped_file_size_consume_queue=2_000,
            message_index_enable=False,
            enable_property_filter=True,
        )
        self.store = MessageStore(config, store_host=bytes(8), files=FastFiles(), clock=clock)
        self.store.open()
        tables = Tables(config, clock, lambda _: None, lambda _: None)
        tables.load()
        topic = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        tables.topics.update([topic])
        self.components = Components(
            config,
            tables,
            self.store,
            address="127.0.0.1:1",
            store_host=bytes(8),
            clock=clock,
            work_clock=lambda: 0.0,
            call_later=lambda *_: None,  # type: ignore[arg-type]
            on_settings=lambda _: None,
            announced=self.settled,
        )
        self.dispatcher = self.components.dispatcher()
        self.decoder = RequestDecoder(self.dispatcher.header_types)
        self.store.start()

    def client(self) -> Client:
        return Client(lambda: self.runner.now)

    async def settled(self) -> None:
        raise AssertionError("nothing is announced")

    # --- what clients do ----------------------------------------------------------------------

    @rule(actions=st.lists(sends | polls | parents, min_size=1, max_size=8), who=st.integers(0, 2))
    def arrive(self, actions: Sequence[Sends | Poll | Parent], who: int) -> None:
        """What one client sent in one write."""
        self.runner.run(self.execute(actions, self.clients[who]))

    @rule(poll=polls, count=st.integers(2, 6), who=st.integers(0, 2))
    def many_wait(self, poll: Poll, count: int, who: int) -> None:
        self.runner.run(self.execute([poll] * count, self.clients[who]))

    @rule(who=st.integers(0, 2))
    def renews(self, who: int) -> None:
        """Its last parent once more, in the same words."""
        client = self.clients[who]
        before = next((asked for asked in reversed(client.asked) if asked.parent), None)
        if before is not None and before.answers:
            self.runner.run(self.ask(client, Asked(before.polls, 0, parent=True), omit=True))

    @rule(who=st.integers(0, 2))
    def goes(self, who: int) -> None:
        gone = self.clients[who]

        async def closed() -> None:
            gone.close()

        self.runner.run(closed())
        self.clients[who] = self.client()

    @rule(milliseconds=st.sampled_from([1, 100, 900, 2_000, 8_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.runner.run(asyncio.sleep(milliseconds / 1000))
        self.check()

    @rule()
    def settles(self) -> None:
        self.runner.settle()
        self.check()

    async def execute(self, actions: Sequence[Sends | Poll | Parent], client: Client) -> None:
        for action in actions:
            if isinstance(action, Sends):
                for message in action.messages:
                    self.append(action.queue_id, message)
            elif isinstance(action, Poll):
                await self.ask(client, Asked([(action, self.offset(action))], 0))
            else:
                polls = [(poll, self.offset(poll)) for poll in action.children]
                await self.ask(client, Asked(polls, 0, parent=True), omit=action.omit)

    def offset(self, poll: Poll) -> int:
        return max(0, len(self.queues[poll.queue_id]) - poll.back)

    def append(self, queue_id: int, message: Message) -> None:
        result = self.store.put(
            TOPIC,
            queue_id,
            b"body",
            names.encode({"TAGS": message.tag, "a": str(message.a)}),
            born_timestamp=START,
            born_host=bytes(8),
            tags_code=tag_hash(message.tag),
        )
        assert result.queue_offset == len(self.queues[queue_id])
        self.queues[queue_id].append(message)

    async def ask(self, client: Client, asked: Asked, *, omit: bool = False) -> None:
        """Send it, and stay in the turn."""
        self.opaque += 1
        asked.at = self.runner.now
        client.asked.append(asked)
        client.sent[self.opaque] = asked
        children = [pull_of(poll, offset) for poll, offset in asked.polls]
        if asked.parent:
            header = BatchRequestHeader(dispatch_code=PULL, omit_not_found=omit)
            code = int(RequestCode.COMMON_BATCH_REQUEST)
            child = Child(code, header, body_of(children))
        else:
            child = children[0]
        request = self.decoder.decode(child.frame(self.opaque)[4:])
        request.connection = request.channel = client  # type: ignore[assignment]
        answer = self.dispatcher.dispatch(request)
        if answer is not None:
            assert isinstance(answer, Response)
            client.respond(request, answer)

    # --- what must hold -----------------------------------------------------------------------

    def check(self) -> None:
        for client in self.clients:
            for asked in client.asked:
                assert len(asked.answers) <= 1
                if asked.answers:
                    self.check_answer(asked, asked.answers[0])
                    continue
                assert self.runner.now < asked.deadline + LATE, asked
                for poll, offset in asked.polls:
                    assert self.first_match(poll, offset) is None, (poll, offset)
            client.asked = [asked for asked in client.asked if asked.parent or not asked.answers]

    def check_answer(self, asked: Asked, answer: Command) -> None:
        if not asked.parent:
            answers = {100: answer}
        else:
            assert answer.code == ResponseCode.SUCCESS
            answers = decode_answers(answer.body)
        for opaque, found in answers.items():
            self.check_poll(*asked.polls[opaque - 100], found)
        if all(found.code == NOT_FOUND for found in answers.values()):
            assert asked.answered_at >= asked.deadline - EARLY, asked

    def check_poll(self, poll: Poll, offset: int, answer: Command) -> None:
        assert answer.code in (FOUND, NOT_FOUND, RETRY), answer
        if answer.code == FOUND:
            first = next(iter_records(answer.body))
            assert first.queue_offset == self.first_match(poll, offset)

    def first_match(self, poll: Poll, offset: int) -> int | None:
        wants = WANTED[poll.kind][1]
        queue = self.queues[poll.queue_id]
        return next((at for at in range(offset, len(queue)) if wants(queue[at])), None)

    def teardown(self) -> None:
        try:
            self.settles()
            # Every poll that is left comes to its end.
            self.time_passes(25_000)
            assert all(asked.answers for client in self.clients for asked in client.asked)
            assert len(self.components.pulls.holds) == 0
        finally:
            try:
                self.components.pulls.holds.close()
                self.runner.run(self.store.close())
                self.runner.close()
            finally:
                shutil.rmtree(self.root)


def clock() -> int:
    return START


def pull_of(poll: Poll, offset: int) -> Child:
    return pull(TOPIC, offset, queue_id=poll.queue_id, hold=poll.hold, **WANTED[poll.kind][0])


TestHoldMachine = HoldMachine.TestCase
TestHoldMachine.settings = settings(
    max_examples=50,
    stateful_step_count=20,
    deadline=None,
    # Shrinking takes minutes, and the steps that fail are few as it is.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],
)
