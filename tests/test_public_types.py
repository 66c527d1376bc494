"""What mypy and pyright say about programs that use the public names."""

from __future__ import annotations

import inspect
import json
import logging
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import get_type_hints

import pytest

import pocketmq
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.types import ClientOptions

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


def simple(name: str) -> str:
    """A type without the modules of its parts, and a named tuple by its name."""
    changed = 1
    while changed:  # from the inside out
        name, changed = re.subn(r"tuple\[[^\[\]]*, fallback=([\w.]+)\]", r"\1", name)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", name).replace("def (", "(")


def commented(program: str, comment: str) -> list[tuple[int, str]]:
    lines = enumerate(program.splitlines(), 1)
    return [(n, match[1]) for n, line in lines if (match := re.search(comment, line))]


class Checker:
    """Gives (line, type) of each `reveal_type` and the (line, text) of each error."""

    def check(self, program: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        raise NotImplementedError


class Mypy(Checker):
    def check(self, program: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        pytest.importorskip("mypy", reason="pip install 'pocketmq[test]'")
        cache = PROJECT / ".mypy_cache" / "programs"
        for result in cache.rglob(f"{program.stem}.*"):
            result.unlink()  # of a run before, whose types mypy would not reveal again
        ended = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program),
             "--cache-dir", str(cache)],
            cwd=PROJECT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        revealed, errors = [], []
        for line in ended.stdout.splitlines():
            if not line.startswith(str(program)):
                assert ": error:" not in line, line
                continue
            number = int(line.removeprefix(str(program)).split(":")[1])
            if match := re.search(r'Revealed type is "(.*)"', line):
                revealed.append((number, match[1]))
            elif ": error:" in line:
                errors.append((number, line))
        assert revealed or errors or ended.returncode == 0, ended.stdout + ended.stderr
        return revealed, errors


class Pyright(Checker):
    def check(self, program: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        pytest.importorskip("pyright", reason="pip install 'pocketmq[test]'")
        (program.parent / "pyrightconfig.json").write_text(
            json.dumps({"typeCheckingMode": "strict", "reportUnusedExpression": False,
                        "extraPaths": [str(PROJECT)]})
        )  # fmt: skip
        ended = subprocess.run(
            [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable,
             program.name],
            cwd=program.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not ended.stdout.startswith("{"):
            pytest.skip(f"pyright needs node: {ended.stderr.strip()[-200:]}")
        revealed, errors = [], []
        for found in json.loads(ended.stdout)["generalDiagnostics"]:
            number = found["range"]["start"]["line"] + 1
            if match := re.search(r'Type of ".*" is "(.*)"', found["message"], re.DOTALL):
                revealed.append((number, match[1]))
            elif found["severity"] == "error":
                errors.append((number, found["message"]))
        return revealed, errors


@pytest.fixture(params=[Mypy(), Pyright()], ids=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Checker:
    checker: Checker = request.param
    return checker


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_types_of_public_names(checker: Checker, program: Path) -> None:
    program.write_text(REVEALED)
    revealed, errors = checker.check(program)
    assert errors == []
    found = [(line, simple(name)) for line, name in revealed]
    assert found == commented(REVEALED, r"reveal_type\(.*# (.+)$")


def test_programs_that_are_right(checker: Checker, program: Path) -> None:
    program.write_text(ACCEPTED)
    assert checker.check(program) == ([], [])


def test_mistakes_that_are_found(checker: Checker, program: Path) -> None:
    program.write_text(REJECTED)
    _, errors = checker.check(program)
    assert {line for line, _ in errors} == {n for n, _ in commented(REJECTED, r"# (error)$")}


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
