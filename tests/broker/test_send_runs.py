"""The compiled sends: whatever comes, in whichever pieces, they do what those in Python do.

Skipped where the accelerator is not built (`make accelerator`); the other tests of sends run with
whatever is there.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from pocketmq._accelerator import PURE_PYTHON
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.signature import sign
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.send import context, send, send_many, send_runs
from pocketmq.message.checksum import crc32
from pocketmq.remoting.answers.batch import child_frames, decode_answers
from pocketmq.remoting.answers.stored_answer import StoredAnswer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import FrameError, HeaderError
from pocketmq.remoting.frames.frame import decode_command, encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    Header,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, RequestConnection, Response
from pocketmq.remoting.serving.server import RemotingServer, ServerConnection
from pocketmq.store.encoding.record_encoder import TopicField
from tests.broker.conftest import StartBroker
from tests.broker.test_failing_disk import Disk
from tests.interop.harness.ports import free_port
from tests.mutation import broken
from tests.remoting.peers import FakeTransport, RawPeer

COMPILED: Any = send_runs.compiled_types()
compiled_only = pytest.mark.skipif(COMPILED is None, reason="make accelerator")

NOW = 1_700_000_000_000
TOPICS = ("orders", "stock", "t" * 100, "unknown", "wrong.")
KEYS = ("", "KEYS\x01k%d\x02", "KEYS\x01ключ %d\x02", 'KEYS\x01"a\\b/%d\x02', "K\x01\n\t%d\x02")
TAGS = ("", "TAGS\x01paid\x02", "TAGS\x01打\x02", "TAGS\x01\x02", "TAGS\x01a\x02TAGS\x01b\x02")
ODD = (
    "DELAY\x013\x02",
    "TIMER_DELAY_SEC\x011\x02",
    "__SHARDINGKEY\x01s\x02",
    "WAIT\x01false\x02",
    "_SYS_MSG_PRIORITY_\x012\x02",
)


def properties(chance: random.Random, number: int) -> str:
    """Encoded properties: mostly a unique id between tags and keys, now and then odd ones."""
    unique = chance.choice((f"UNIQ_KEY\x017F00000100{number:022X}\x02",) * 8 + ("", "UNIQ_KEY\x01"))
    parts = [chance.choice(TAGS), chance.choice(KEYS).replace("%d", str(number % 7)), unique]
    if not chance.randrange(12):
        parts.append(chance.choice(ODD))
    chance.shuffle(parts)
    text = "".join(parts)
    return text.removesuffix("\x02") if not chance.randrange(6) else text


def a_send(chance: random.Random, number: int) -> bytes:
    """The frame of a send, as clients write them, or with an unusual value."""
    usual = chance.randrange(8)
    v2 = chance.randrange(4)
    fields: dict[str, Any] = {
        "producer_group": chance.choice(("G", "Grüppe")) if not usual else "G",
        "topic": chance.choice(TOPICS) if not chance.randrange(5) else TOPICS[0],
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": chance.randrange(-1, 6) if not usual else chance.randrange(4),
        "sys_flag": chance.choice((0, 1, 4, 8, 16, 1 << 30)) if not usual else 0,
        "born_timestamp": NOW - chance.randrange(1000)
        if usual
        else chance.choice((0, -1, 1 << 62)),
        "flag": chance.choice((0, -7, 2**31 - 1)),
        "properties": properties(chance, number),
        "reconsume_times": 0 if usual else chance.randrange(3),
        "unit_mode": not usual,
        "batch": not chance.randrange(200),
    }
    if not usual:
        fields["max_reconsume_times"] = 16
        fields["bname"] = "b0"
    header = SendMessageRequestHeaderV2(**fields) if v2 else SendMessageRequestHeader(**fields)
    size = chance.choice((0, 1, 10, 100, 100, 100, 1000, 9000, 70_000 if not usual else 50))
    code: int = RequestCode.SEND_MESSAGE_V2 if v2 else RequestCode.SEND_MESSAGE
    return encode_command(
        code if chance.randrange(20) else chance.choice((9_999, 9_998, 888)),
        chance.choice((number, -number)),
        flag=0 if chance.randrange(30) else 2,
        header=header,
        body=chance.randbytes(1) * size,
        serialize_type=chance.choice((0, 0, 1)),
        language=chance.choice(("JAVA", "GO", "PYTHON")),
    )


def a_parent(chance: random.Random, number: int, children: Sequence[bytes]) -> bytes:
    """The frame of a parent, mostly of sends."""
    codes = (RequestCode.SEND_MESSAGE_V2,) * 6 + (RequestCode.SEND_MESSAGE, 9_999, None)
    header = BatchRequestHeader(
        dispatch_code=chance.choice(codes),
        omit_not_found=True if not chance.randrange(20) else None,
    )
    return encode_command(
        RequestCode.COMMON_BATCH_REQUEST,
        number,
        flag=0 if chance.randrange(30) else 2,
        header=header,
        body=b"".join(children),
        serialize_type=chance.choice((0, 0, 1)),
    )


def in_parents(chance: random.Random, frames: Sequence[bytes]) -> Iterator[bytes]:
    """The same frames, some of them in parents; most of these are like those of clients."""
    at = 0
    while at < len(frames):
        count = chance.choice((0, 1, 5, 20, 70))
        some = frames[at : at + count]
        if chance.randrange(3) == 0:
            yield from some
        elif chance.randrange(4):
            usual = [frame for frame in map(usual_child, some) if frame]
            yield a_parent(chance, at, usual)
        else:
            yield a_parent(chance, at, some)
        at += count


def usual_child(frame: bytes) -> bytes:
    """The same send as most clients write children, or nothing instead of an unusual one."""
    command = decode_command(frame[4:])
    fields = command.ext_fields
    topic = fields.get("b", fields.get("topic"))
    queue_id = int(fields.get("e", fields.get("queueId", -1)))
    if command.flag or topic != TOPICS[0] or not 0 <= queue_id < 4 or not command.body:
        return b""
    return encode_command(
        RequestCode.SEND_MESSAGE_V2,
        abs(command.opaque),
        header=SendMessageRequestHeaderV2(
            topic=topic, queue_id=queue_id, sys_flag=0, born_timestamp=NOW, flag=0,
            properties=f"UNIQ_KEY\x01{abs(command.opaque):032X}\x02TAGS\x01paid\x02",
        ),
        body=bytes(command.body),
        serialize_type=command.serialize_type,
    )  # fmt: skip


def some_reads(seed: int, *, sign_them: bool = False) -> Iterator[list[bytes]]:
    """For one connection after another, what is read from it: frames, few of them broken, cut
    anywhere."""
    chance = random.Random(seed)
    number = itertools.count(1)
    for _ in range(40):
        frames = [a_send(chance, next(number)) for _ in range(chance.choice((1, 3, 40, 90)))]
        if chance.randrange(2):
            frames = list(in_parents(chance, frames)) or frames
        if sign_them:
            frames = [signed(chance, frame) for frame in frames]
        if not chance.randrange(3):
            at = chance.randrange(len(frames))
            frames[at] = broken(frames[at], chance)
        if not chance.randrange(4):
            at = chance.randrange(len(frames))
            frames[at] = encode_command(RequestCode.GET_BROKER_RUNTIME_INFO, 0, flag=2)
        data = b"".join(frames)
        cuts = sorted(chance.sample(range(len(data)), min(chance.randrange(4), len(data))))
        yield [data[a:b] for a, b in itertools.pairwise((0, *cuts, len(data)))]


USERS = (
    User("root", "root-password", UserType.SUPER),
    User("owner", "owner-password"),
    User("stranger", "stranger-password"),
    User("gone", "gone-password", user_status=UserStatus.DISABLE),
)
GRANTS = Acl((Entry(Resource.parse("Topic:orders"), frozenset({Action.PUB}), Decision.ALLOW),))


def signed(chance: random.Random, frame: bytes) -> bytes:
    """The same request signed by someone, mostly by a user who may send to some topics; parents
    with their children, most of which are not signed."""
    try:
        command = decode_command(frame[4:])
    except (FrameError, HeaderError):
        return frame
    body = bytes(command.body)
    if command.code == RequestCode.COMMON_BATCH_REQUEST and not chance.randrange(3):
        body = b"".join(
            signed(chance, len(child).to_bytes(4) + bytes(child)) for child in child_frames(body)
        )
    fields = dict(command.ext_fields)
    user = chance.choice(USERS[:2] * 8 + USERS[2:] + (User("unknown", "password"),))
    if chance.randrange(12):
        fields["AccessKey"] = user.username
    if not chance.randrange(8):
        fields["SecurityToken"] = "token"
    if chance.randrange(12):
        fields["Signature"] = sign(user.password, fields, body)
    if not chance.randrange(20):
        name = chance.choice(sorted(fields))
        fields[name] = chance.choice((fields[name] + "1", fields[name].lower(), ""))
    names = sorted(fields, key=lambda name: chance.random())
    return encode_command(
        command.code, command.opaque, flag=command.flag, language=command.language,
        ext_fields={name: fields[name] for name in names}, body=body,
        serialize_type=command.serialize_type,
    )  # fmt: skip


class Outcome(NamedTuple):
    """What a broker did: the answers on each connection, its counts, and its files."""

    answers: list[bytes]
    counts: list[tuple[object, ...]]
    files: dict[str, bytes]


def counts_of(broker: Broker) -> list[tuple[object, ...]]:
    statistics = broker.tables.statistics
    traffic = {"": statistics.put, **statistics.topic_put}
    counters = broker.store.counters
    return [
        ("store", counters.messages_put, counters.puts_refused, counters.bytes_put),
        *((name, each.messages, each.times, each.size) for name, each in sorted(traffic.items())),
        *(
            (name, *statistics.types_of(name).split(each.messages, each.size))
            for name, each in sorted(traffic.items())
            if name
        ),
    ]


def files_of(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for directory in ("commitlog", "consumequeue")
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def still() -> float:
    """A clock that does not move."""
    return 0.0


async def executed(
    reads: Sequence[Sequence[bytes]],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, Any],
    *,
    pure: bool,
) -> Outcome:
    """Give the reads to a broker with or without the accelerator."""
    with monkeypatch.context() as patch:
        for module in (context, send, send_many):
            patch.setattr(module, "new_unique_id", lambda: "7F" * 16)
        patch.setattr(random, "randrange", lambda queues: queues - 1)
        if pure:
            patch.setenv(PURE_PYTHON, "1")
        config = BrokerConfig(
            store_path_root_dir=str(root), broker_name="b0", auto_create_topic_enable=False,
            mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=20_000, **settings,
        )  # fmt: skip
        # Nothing takes long by `still`, so answers come in the order of the requests.
        broker = Broker(config, clock=lambda: NOW, work_clock=still)
        await broker.start()
        try:
            if broker.auth is not None:
                for user in USERS:
                    broker.auth.tables.put_user(user)
                broker.auth.tables.put_acl("owner", GRANTS)
            for topic in TOPICS[:3]:
                broker.tables.topics.create_if_absent(topic, 4)
                await broker.tables.topics.saved(topic)
            server = RemotingServer(
                broker.dispatcher, before_answers=broker.components.unwritten.settle,
                clock=still,
            )  # fmt: skip
            assert (broker.dispatcher.read_handler is None) is pure
            answers = []
            for pieces in reads:
                connection = ServerConnection(server)
                transport = FakeTransport()
                connection.connection_made(transport)
                for piece in pieces:
                    if not transport.ended:
                        connection.data_received(piece)
                server.flush()
                answers.append(b"".join(transport.writes))
            broker.store.settle()
            counts = counts_of(broker)
        finally:
            await broker.stop()
        return Outcome(answers, counts, files_of(root))


@compiled_only
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metrics_exporter_type": "PROM"},
        {"authentication_enabled": True, "authorization_enabled": True},
        {"authentication_enabled": True},
    ],
    ids=["plain", "metrics", "authorized", "authenticated"],
)
@pytest.mark.parametrize("seed", range(6))
async def test_compiled_sends_do_what_those_in_python_do(
    seed: int, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list(some_reads(seed, sign_them="authentication_enabled" in more))
    # The port is part of the records, and of the ids of messages.
    settings = {"listen_port": free_port(), "metrics_prom_exporter_port": free_port(), **more}
    compiled = await executed(reads, tmp_path / "compiled", monkeypatch, settings, pure=False)
    python = await executed(reads, tmp_path / "python", monkeypatch, settings, pure=True)
    for number, (one, other) in enumerate(zip(compiled.answers, python.answers, strict=True)):
        assert one == other, f"read {number}"
    assert compiled.counts == python.counts
    assert compiled.files.keys() == python.files.keys()
    assert [name for name, data in compiled.files.items() if data != python.files[name]] == []


def sends(*opaques: int) -> bytes:
    header = SendMessageRequestHeaderV2(
        topic="orders", queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties="UNIQ_KEY\x01A"
    )
    return b"".join(
        encode_command(RequestCode.SEND_MESSAGE_V2, opaque, header=header, body=b"body")
        for opaque in opaques
    )


def parent(body: bytes) -> bytes:
    header = BatchRequestHeader(dispatch_code=RequestCode.SEND_MESSAGE_V2)
    return encode_command(RequestCode.COMMON_BATCH_REQUEST, 7, header=header, body=body)


def compiled_encode(**options: Any) -> Any:
    """`SendRun.encode` of one topic with one queue, and what it is given."""
    answer = StoredAnswer.of_message(bytes(8), trace_on=True)
    queue = SimpleNamespace(
        next_offset=0, room=100, delayed=False, topic_field=TopicField.of("orders")
    )
    target = SimpleNamespace(queue_limit=1, sys_flag=0)
    send_run, send_answers = COMPILED
    answers = send_answers(
        msg_id=b"00", json=answer.json_parts, binary=answer.binary_parts, language=0, version=0
    )
    run = send_run(
        {"orders": target}, send_runs.examine, crc32, answers, Response.repeatable(0, "done"),
        most_children=3, suffix=b"", store_host=bytes(8), special=0, kept=-1,
    )  # fmt: skip
    arguments = {
        "data": sends(0, 0, 0), "start": 0, "most": 32, "longest": 1 << 20, "guard": None,
        "source_ip": "10.0.0.1", "born_host": bytes(8), "by_topic": {"orders": {0: queue}},
        "buffer": bytearray(1000), "at": 0, "room": 1000, "physical_offset": 0, "timestamp": 0,
        "most_body": 4,
    }  # fmt: skip
    return run.encode(**{**arguments, **options})


@compiled_only
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),
        ({"most": 2}, 2),
        ({"room": 250}, 2),
        ({"longest": 10}, 0),
        ({"most_body": 3}, 0),
        ({"by_topic": {}}, 0),
        ({"by_topic": {"orders": {}}}, 0),
        ({"born_host": bytes(20)}, 0),
        ({"room": 0}, 0),
    ],
)
def test_a_run_ends_at_every_bound(options: dict[str, Any], count: int) -> None:
    run = compiled_encode(**options)
    assert (0 if run is None else run.messages) == count


@compiled_only
@pytest.mark.parametrize(
    ("frames", "options", "count"),
    [
        ((parent(sends(1, 2, 3)),), {}, 3),
        ((parent(sends(1, 2, 3)),) * 2, {"most": 4}, 6),
        ((parent(sends(1, 2, 3)),) * 2, {"most": 3}, 3),
        ((parent(sends(1, 2)), parent(sends(1, 2, 3, 4))), {}, 2),
        ((sends(1), parent(sends(2, 2))), {}, 1),
        ((sends(1), parent(b"")), {}, 1),
        ((sends(1), parent(sends(1, 2)[:-1])), {}, 1),
        ((sends(1), parent(sends(1) + parent(sends(2)))), {}, 1),
        ((sends(1), parent(sends(1, 2, 3))), {"room": 400}, 1),
        ((parent(sends(1, 2, 3)),), {"room": 250}, 0),
    ],
)
def test_a_parent_is_executed_whole_or_not_at_all(
    frames: Sequence[bytes], options: dict[str, Any], count: int
) -> None:
    run = compiled_encode(**{"data": b"".join(frames), **options})
    assert (0 if run is None else run.messages) == count
    if run is not None:
        [(_, _, _, entries, size)] = run.queues
        assert (len(entries) // 20, size) == (count, run.size)
        assert len(run.opaques) + sum(len(opaques) for _, opaques in run.parents) == count
        answers = [decode_command(frame) for frame in child_frames(run.answers)]
        assert sum(len(decode_answers(each.body)) for each in answers if each.body) == sum(
            len(opaques) for _, opaques in run.parents
        )


class Asked:
    """A guard with one user, that remembers what it was asked."""

    def __init__(self, *, signed: bool, allowed: bool) -> None:
        self.questions: list[tuple[object, ...]] = []
        self._signed = signed
        self._allowed = allowed

    def signer(self, name: str) -> Asked | None:
        self.questions.append(("signer", name))
        return self if name == "owner" else None

    def has_signed(self, given: bytes, values: memoryview, body: memoryview) -> bool:
        self.questions.append(("signed", given, bytes(values), bytes(body)))
        return self._signed

    def may_send(self, topic: str, source_ip: str) -> bool:
        self.questions.append(("may send", topic, source_ip))
        return self._allowed


@compiled_only
@pytest.mark.parametrize(
    ("signed", "allowed", "asked"), [(True, True, 4), (True, False, 3), (False, True, 2)]
)
def test_nothing_is_looked_up_for_a_send_before_its_signature_is_checked(
    signed: bool, allowed: bool, asked: int
) -> None:
    fields = {
        "i": "UNIQ_KEY\x01A", "Signature": "S", "b": "orders", "e": "0", "f": "0", "g": "0",
        "h": "7", "SecurityToken": "token", "AccessKey": "owner",
    }  # fmt: skip
    frame = partial(encode_command, RequestCode.SEND_MESSAGE_V2, body=b"body")
    data = frame(1, ext_fields=fields) + frame(2, ext_fields=fields)
    guard = Asked(signed=signed, allowed=allowed)
    run = compiled_encode(data=data, guard=guard)
    values = b"ownertokenorders0007UNIQ_KEY\x01A"
    assert (
        guard.questions
        == [
            ("signer", "owner"),
            ("signed", b"S", values, b"body"),
            ("may send", "orders", "10.0.0.1"),
            ("signed", b"S", values, b"body"),
        ][:asked]
    )
    assert (run is not None) is (asked == 4)


@compiled_only
@pytest.mark.parametrize("name", ["", "stranger"])
def test_a_send_of_nobody_is_not_executed(name: str) -> None:
    guard = Asked(signed=True, allowed=True)
    header = SendMessageRequestHeaderV2(
        topic="orders", queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties="UNIQ_KEY\x01A"
    )
    data = encode_command(
        RequestCode.SEND_MESSAGE_V2, 1, ext_fields={**header.to_ext(), "AccessKey": name}, body=b"b"
    )
    assert compiled_encode(data=data, guard=guard) is None
    assert guard.questions == ([("signer", name)] if name else [])


@compiled_only
@pytest.mark.parametrize(
    "options",
    [{"start": -1}, {"start": 10_000}, {"room": 1001}, {"at": -1}, {"at": 1}, {"room": -1}],
)
def test_nothing_is_written_outside_of_the_buffer(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"outside|room"):
        compiled_encode(**options)


@compiled_only
@pytest.mark.parametrize("in_parent", [False, True])
async def test_sends_of_one_read_are_refused_while_nothing_can_be_written(
    in_parent: bool, start_broker: StartBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers are replaced, and their messages stored when the disk is mended."""
    disk = Disk(monkeypatch)
    broker = await start_broker(options={"clock": lambda: NOW})
    broker.tables.topics.create_if_absent(topic, 1)
    await broker.tables.topics.saved(topic)
    header = SendMessageRequestHeaderV2(
        topic=topic, queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties="UNIQ_KEY\x01A"
    )
    frame = partial(encode_command, RequestCode.SEND_MESSAGE_V2, header=header, body=b"body")
    peer = await RawPeer.open(broker.port)
    peer.send(frame(0))
    assert (await peer.read()).code == 0
    disk.fail(errno.ENOSPC)
    frames = b"".join(frame(opaque) for opaque in range(1, 41))
    peer.send(parent(frames) if in_parent else frames)
    if in_parent:
        answers = list(decode_answers((await peer.read()).body).values())
    else:
        answers = [await peer.read() for _ in range(40)]
    assert {answer.code for answer in answers} == {int(ResponseCode.SERVICE_NOT_AVAILABLE)}
    assert sorted(answer.opaque for answer in answers) == list(range(1, 41))
    disk.mend()
    await peer.close()


@compiled_only
async def test_each_port_refuses_what_it_has_refused(start_broker: StartBroker) -> None:
    """A code that is unknown to the broker's port may be known to its VIP port, or the other way
    round: their tables differ."""
    broker = await start_broker()
    sends = broker.components.sends
    ports = [Dispatcher() for _ in range(2)]
    for dispatcher in ports:
        sends.register(dispatcher)
        request = Request(code=9_999, header=Header())
        assert isinstance(dispatcher.dispatch(request), Response)
    data = encode_command(9_999, 7) + encode_command(9_999, 8)
    for dispatcher in ports:
        assert dispatcher.read_handler is not None
        done = dispatcher.read_handler(cast(RequestConnection, None), data, 0, 32, 1 << 20)
        assert done is not None
        assert (done.requests, done.code, done.answer) == (2, 9_999, 3)
    ports[0].register(9_999, lambda request: None)
    assert ports[0].read_handler is not None
    assert ports[0].read_handler(cast(RequestConnection, None), data, 0, 32, 1 << 20) is None
