"""What mypy and pyright say about programs that use the public names."""

from __future__ import annotations

import inspect
import json
import logging
import re
import secrets
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple, get_type_hints

import pytest

import pocketmq
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.types import ClientOptions

# A checker that has read nothing before needs a minute of CPU time.
pytestmark = pytest.mark.timeout(900)

PROJECT = Path(__file__).parents[1]

#: Each line's comment is the type that both checkers reveal.
REVEALED = """
import pocketmq
from pocketmq import *
from pocketmq import codes, errors, hooks, rebalance, selector, sync, telemetry, testing, types
from pocketmq import embedded, spark

async def revealed(
    producer: Producer, push: PushConsumer, pull: PullConsumer, admin: Admin, queue: MessageQueue,
    transactional: TransactionProducer, rocketmq: testing.RocketMQ, error: SendError,
) -> None:
    message = Message("orders", b"1")
    reveal_type(message)  # Message
    reveal_type(message.body)  # bytes
    reveal_type(message.keys)  # Sequence[str]
    reveal_type(await producer.send(message))  # SendResult
    reveal_type(await producer.send_batch([message]))  # list[SendResult]
    reveal_type(await producer.request(message, timeout=3))  # MessageExt
    reveal_type(await transactional.send(message))  # SendResult
    reveal_type((await producer.send(message)).status)  # SendStatus
    reveal_type((await producer.send(message)).queue)  # MessageQueue
    reveal_type(await pull.poll())  # list[MessageExt]
    async for received in pull:
        reveal_type(received)  # MessageExt
        reveal_type(received.keys)  # tuple[str, ...]
    async for consumed in push:
        reveal_type(consumed)  # ConsumedMessage
        reveal_type(consumed.queue_offset)  # int
    reveal_type(await admin.topics())  # list[str]
    reveal_type(await admin.topic_stats("orders"))  # TopicStatsTable
    reveal_type(await admin.lag("billing"))  # int
    reveal_type(queue.queue_id)  # int
    reveal_type(await rocketmq.drain("orders"))  # list[MessageExt]
    reveal_type(rocketmq.namesrv)  # str
    reveal_type(error.retriable)  # bool
    reveal_type(error.tries)  # tuple[SendAttempt, ...]
    reveal_type(codes.ResponseCode(2))  # ResponseCode
    reveal_type(pocketmq.__version__)  # str
    reveal_type(embedded.EmbeddedServer().namesrv)  # str
    reveal_type(rebalance.average([queue], ["a"], "a"))  # list[MessageQueue]
    reveal_type(selector.by_hash([queue], message, "key"))  # MessageQueue
    reveal_type(hooks.SendKind("single"))  # SendKind
    reveal_type(telemetry.OpenTelemetryHook())  # OpenTelemetryHook
    reveal_type(spark.RocketMQDataSource.name())  # str
    spark.session(log="spark.log")
    reveal_type(types.SendStatus(0))  # SendStatus
    reveal_type(errors.error_for(2, "busy"))  # RemotingError

def in_a_thread(producer: sync.Producer, consumer: sync.PushConsumer) -> None:
    reveal_type(producer.send(Message("orders", b"1")))  # SendResult
    for message in consumer:
        reveal_type(message)  # ConsumedMessage
"""

ACCEPTED = """
from pocketmq import ConsumedMessage, Message, MessageExt, PushConsumer, Router, sync
from pocketmq import TransactionProducer, TransactionState, rebalance

class Order: ...
class Refund: ...

consumer = PushConsumer("billing", strategy=rebalance.circle)

@consumer.on("b")
async def takes_a_stored_message(message: MessageExt) -> None: ...

@consumer.on("c", "paid")
async def takes_a_consumed_message(message: ConsumedMessage) -> None:
    message.ack()

@consumer.on("d")
def is_a_plain_function(message: MessageExt) -> None: ...

@consumer.on("b-typed", payload=Order)
async def takes_an_order(message: ConsumedMessage, order: Order) -> None: ...

@consumer.on("b-union", payload=Order | Refund)
async def takes_either(message: ConsumedMessage, either: Order | Refund) -> None: ...

@Router().on("b-union", payload=Order | Refund)
def takes_either_at_once(message: MessageExt, either: Order | Refund) -> None: ...

def decodes_either(message: MessageExt) -> Order | Refund:
    return message.payload(Order | Refund)  # type: ignore[no-any-return, unused-ignore]

async def awaits_a_typed_handler(message: ConsumedMessage) -> None:
    await takes_an_order(message, Order())

@sync.PushConsumer("plain").on("b-typed", payload=Order)
def returns_a_number(message: sync.ConsumedMessage, order: Order) -> int:
    return 1

def calls_a_typed_handler(message: sync.ConsumedMessage) -> int:
    return returns_a_number(message, Order())

@consumer.on("e", max_batch=32)
async def takes_several(messages: list[ConsumedMessage]) -> None: ...

async def takes_what_a_producer_sends(message: Message) -> None:
    print(message.keys, message.body)

for each in (consumer, Router(), sync.PushConsumer("plain")):
    each.on("f")(takes_what_a_producer_sends)

def check(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT

TransactionProducer("shop", check=check, retries=3, timeout=2, namespace="here")
"""

#: Each line with a comment is a mistake.
REJECTED = """
from pocketmq import Message, Producer, PushConsumer, TransactionProducer, TransactionState, sync
from pocketmq.errors import Misspelt  # error
from pocketmq import Consumer  # error

consumer = PushConsumer("billing", concurency=3)  # error
Producer("shop", retrys=3)  # error
TransactionProducer("shop", check=lambda m: TransactionState.COMMIT, retrys=3)  # error
TransactionProducer("shop", check=lambda m: TransactionState.COMMIT, retries="3")  # error
sync.TransactionProducer("shop", check=lambda m: TransactionState.COMMIT, retrys=3)  # error
Message("orders", b"1", tagz="paid")  # error
Message("orders", "text")  # error

async def takes_a_number(number: int) -> None: ...

PushConsumer("billing", {"a": "*"}, handler=takes_a_number)  # error

async def takes_a_message_and_a_number(message: Message, number: int) -> None: ...

PushConsumer("billing").on("a", payload=str)(takes_a_message_and_a_number)  # error
"""

SYNC = """
from pocketmq import Message, TransactionState, sync

with sync.Producer("shop", timeout=2) as producer:
    reveal_type(producer.send(Message("orders", b"x")))  # SendResult
    reveal_type(producer.post(Message("orders", b"x")).result())  # SendResult
    producer.send(b"no message")  # error
    producer.nothing  # error

consumer = sync.PushConsumer("billing", orderly=True)

@consumer.on("orders")
def bill(message: sync.ConsumedMessage) -> None:
    message.reconsume(3)

@consumer.on("orders", max_batch=3)
def bill_all(messages: list[sync.ConsumedMessage]) -> None:
    messages[0].ack()

@consumer.on("orders")  # error
def takes_no_message(number: int) -> None: ...

for message in consumer:
    with message:
        reveal_type(message)  # ConsumedMessage

with sync.TransactionProducer("g", check=lambda m: TransactionState.COMMIT, retries=1) as two:
    with two.transaction(Message("t", b"x")) as begun:
        reveal_type(begun.half)  # SendResult
with sync.PullConsumer("g") as puller:
    reveal_type(puller.poll())  # list[MessageExt]
    puller.seek("middle")  # error
with sync.Admin() as admin:
    reveal_type(admin.topics())  # list[str]
"""

#: Both kinds of consumers take a router.
ROUTER = """
from pocketmq import PushConsumer, ConsumedMessage, Router, sync

router = Router()

@router.on("a")
async def one(message: ConsumedMessage) -> None: ...

@router.on("b")
def two(message: sync.ConsumedMessage) -> None: ...

@router.on("c", max_batch=3)
def three(messages: list[ConsumedMessage]) -> None: ...

@router.on("d", payload=dict)
def four(message: ConsumedMessage, payload: dict[str, int]) -> None: ...

@router.on("u", payload=int | str)
def union(message: ConsumedMessage, payload: int | str) -> None:
    message.payload(int | str)

PushConsumer("g", router)
sync.PushConsumer("g", router)

@router.on("e", payload=int)  # error
def five(message: ConsumedMessage, payload: str) -> None: ...
"""

#: A checker sees all of them at once: it is the package that takes long to read.
PROGRAMS = {
    "revealed": REVEALED, "accepted": ACCEPTED, "rejected": REJECTED, "blocking": SYNC,
    "routed": ROUTER,
}  # fmt: skip


def simple(name: str) -> str:
    """A type without the modules of its parts, and a named tuple by its name."""
    changed = 1
    while changed:  # from the inside out
        name, changed = re.subn(r"tuple\[[^\[\]]*, fallback=([\w.]+)\]", r"\1", name)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", name).replace("def (", "(")


def commented(program: str, comment: str) -> list[tuple[int, str]]:
    lines = enumerate(program.splitlines(), 1)
    return [(n, match[1]) for n, line in lines if (match := re.search(comment, line))]


class Findings(NamedTuple):
    """What a checker says of a program: (line, type) of each `reveal_type`, and (line, text) of
    each error."""

    revealed: list[tuple[int, str]]
    errors: list[tuple[int, str]]


Found = dict[str, Findings]


def name_of(path: str) -> str:
    """The program in a file."""
    return Path(path).stem.partition("_")[0]


def mypy(directory: Path) -> Found:
    pytest.importorskip("mypy", reason="pip install 'pocketmq[test]'")
    cache = PROJECT / ".mypy_cache" / "programs"
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(cache),
         *map(str, sorted(directory.iterdir()))],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {name: Findings([], []) for name in PROGRAMS}
    for line in ended.stdout.splitlines():
        if not line.startswith(str(directory)):
            # Some of the packages that pocketmq imports have no types.
            assert ": error:" not in line or line.endswith("[import-untyped]"), line
            continue
        path, number, told = line.split(":", 2)
        program = found[name_of(path)]
        if match := re.search(r'Revealed type is "(.*)"', told):
            program.revealed.append((int(number), match[1]))
        elif " error:" in told:
            program.errors.append((int(number), told))
    assert found["revealed"].revealed, ended.stdout + ended.stderr
    return found


def pyright(directory: Path) -> Found:
    pytest.importorskip("pyright", reason="pip install 'pocketmq[test]'")
    programs = [path.name for path in directory.iterdir()]
    (directory / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "reportUnusedExpression": False,
                    "extraPaths": [str(PROJECT)]})
    )  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable,
         *programs],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not ended.stdout.startswith("{"):
        pytest.skip(f"pyright needs node: {ended.stderr.strip()[-200:]}")
    found = {name: Findings([], []) for name in PROGRAMS}
    for told in json.loads(ended.stdout)["generalDiagnostics"]:
        program = found[name_of(told["file"])]
        number = told["range"]["start"]["line"] + 1
        if match := re.search(r'Type of ".*" is "(.*)"', told["message"], re.DOTALL):
            program.revealed.append((number, match[1]))
        elif told["severity"] == "error":
            program.errors.append((number, told["message"]))
    return found


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    directory = tmp_path_factory.mktemp("programs")
    run = secrets.token_hex(4)  # mypy tells nothing of a module that its cache knows
    for name, program in PROGRAMS.items():
        (directory / f"{name}_{run}.py").write_text(program)
    says: Found = request.param(directory)
    return says


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_and_mistakes(found: Found, name: str) -> None:
    revealed, errors = found[name]
    program = PROGRAMS[name]
    types = [(line, simple(text)) for line, text in sorted(revealed)]
    assert types == commented(program, r"reveal_type\(.*# (.+)$")
    assert {line for line, _ in errors} == {n for n, _ in commented(program, r"# (error)$")}, errors


def test_the_options_of_a_transaction_producer_are_those_of_a_producer() -> None:
    parameters = inspect.signature(pocketmq.Producer).parameters.values()
    hints = get_type_hints(pocketmq.Producer.__init__)
    expected = {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert get_type_hints(ProducerOptions) == expected | get_type_hints(ClientOptions)


def test_all_loggers_are_under_pocketmq() -> None:
    """So that `logging.getLogger("pocketmq")` governs them."""
    for module in walk_packages(pocketmq.__path__, "pocketmq."):
        if module.name != "pocketmq.__main__":
            try:
                import_module(module.name)
            except ImportError:  # of an extra that is not installed
                continue
            for value in vars(sys.modules[module.name]).values():
                if isinstance(value, logging.Logger):
                    assert value.name.split(".")[0] == "pocketmq", module.name
