"""What the official client for Python does with a proxy: `scenario.py ENDPOINT SSL PREFIX NAME...`.

The scenarios run side by side. Each fact is one line, `> NAME: FACT`. Topics and groups begin with
the prefix.

A program of its own, because the client's threads outlive a test.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq import (  # type: ignore[import-untyped]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-untyped]
from rocketmq.v5.exception.client_exception import (  # type: ignore[import-untyped]
    InternalErrorException,
)

ENDPOINT, SSL, PREFIX = sys.argv[1:4]
KEYS = [os.environ[name] for name in ("ACCESS_KEY", "SECRET_KEY") if name in os.environ]
CONFIG = ClientConfiguration(ENDPOINT, Credentials(*KEYS), request_timeout=5)


class Scenario:
    """One of them; its topic is named like it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic = PREFIX + name

    def say(self, text: str) -> None:
        print(f"> {self.name}: {text}\n", end="", flush=True)

    def message(self, body: str, **fields: Any) -> Message:
        message = Message()
        message.topic = self.topic
        message.body = body.encode()
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    def producer(self, *checker: Any) -> Any:
        begun = Producer(CONFIG, (self.topic,), *checker, tls_enable=SSL == "true")
        begun.startup()
        return begun

    def simple(self, group: str, expression: FilterExpression) -> Any:
        """Return a consumer of a group that has begun: it gets what is sent from now on."""
        consumer = SimpleConsumer(
            CONFIG, PREFIX + group, {self.topic: expression},
            await_duration=5, tls_enable=SSL == "true",
        )  # fmt: skip
        consumer.startup()
        for _ in range(5):
            # The official proxy fails until it has the client's settings, which come by themselves.
            with contextlib.suppress(InternalErrorException):
                consumer.receive(1, 10)
                return consumer
            time.sleep(1)
        raise RuntimeError("the proxy does not get the settings of the consumer")

    def pushing(self, consume: Callable[[Any], bool]) -> Any:
        class Listener(MessageListener):  # type: ignore[misc]
            def consume(self, message: Any) -> Any:
                return ConsumeResult.SUCCESS if consume(message) else ConsumeResult.FAILURE

        consumer = PushConsumer(
            CONFIG, self.topic, Listener(), {self.topic: FilterExpression()},
            tls_enable=SSL == "true",
        )  # fmt: skip
        consumer.startup()
        time.sleep(3)  # its first receives have begun
        return consumer

    def normal(self) -> None:
        tags = self.simple("tags", FilterExpression("a || b"))
        sql = self.simple("sql", FilterExpression("n > 3", FilterType.SQL))
        sender = self.producer()
        for number in range(6):
            message = self.message(f"m{number}", tag="abc"[number % 3], keys=f"k{number}")
            message.add_property("n", str(number))
            if len(identity := sender.send(message).message_id) != 34:
                self.say(f"id {identity}")
        got = receive(tags, 4, 30)
        for message in sorted(got, key=body):
            keys = ",".join(message.keys)
            n = message.properties["n"]
            self.say(f"{body(message)} {message.tag} {keys} {n} {message.delivery_attempt}")
        for message in got[1:]:
            tags.ack(message)
        begun = time.monotonic()
        tags.change_invisible_duration(got[0], 1)
        again = receive(tags, 1, 30)
        self.say(f"back after {(time.monotonic() - begun) * 1000:.0f} ms")
        same = "true" if body(again[0]) == body(got[0]) else "false"
        self.say(f"again {same} {again[0].delivery_attempt}")
        # The handle of a change counts (apache/rocketmq#9583).
        tags.change_invisible_duration(again[0], 10)
        tags.ack(again[0])
        self.say(f"sql {bodies(receive(sql, 2, 30))}")
        self.say(f"left {len(receive(tags, 1, 12))}")

    def fifo(self) -> None:
        consumer = self.simple("fifo", FilterExpression())
        sender = self.producer()
        for number in range(10):
            sender.send(self.message(f"f{number}", message_group=f"group{number % 2}"))
        groups: dict[str, list[str]] = {}
        count, end = 0, time.monotonic() + 60
        while count < 10 and time.monotonic() < end:
            for message in consumer.receive(16, 20):
                groups.setdefault(message.message_group, []).append(body(message))
                consumer.ack(message)
                count += 1
        for group, seen in sorted(groups.items()):
            self.say(f"{group} {' '.join(seen)}")

    def delay(self) -> None:
        consumer = self.simple("delay", FilterExpression())
        sender = self.producer()
        due = int(time.time() + 3)
        sender.send(self.message("later", delivery_timestamp=due))
        receipt = sender.send(self.message("never", delivery_timestamp=due + 3))
        sender.recall_message(self.topic, receipt.recall_handle)
        got = receive(consumer, 1, 15)
        early = "true" if time.time() < due else "false"
        got += receive(consumer, 1, 6)
        self.say(f"delivered {bodies(got)}, early {early}")

    def transaction(self) -> None:
        asked: set[str] = set()

        class Checker(TransactionChecker):  # type: ignore[misc]
            def check(self, message: Any) -> Any:
                asked.add(body(message))
                orphan = body(message) == "orphan"
                return TransactionResolution.COMMIT if orphan else TransactionResolution.UNKNOWN

        consumer = self.simple("transaction", FilterExpression())
        sender = self.producer(Checker())
        for what in ("commit", "rollback", "orphan"):
            begun = sender.begin_transaction()
            sender.send(self.message(what), begun)
            if what == "commit":
                begun.commit()
            elif what == "rollback":
                begun.rollback()
        self.say(f"committed {bodies(receive(consumer, 2, 60))}")
        self.say(f"asked {'true' if 'orphan' in asked else 'false'}")

    def push(self) -> None:
        seen: list[str] = []

        def consume(message: Any) -> bool:
            seen.append(body(message))
            fails_once = seen[-1] == "p1" and message.delivery_attempt < 2
            return not fails_once and seen[-1] != "p2"

        self.pushing(consume)
        sender = self.producer()
        for number in range(7):
            sender.send(self.message(f"p{number}"))
        settle(seen, 10)
        for text, count in sorted(Counter(seen).items()):
            self.say(f"{text} {count}")

    def order(self) -> None:
        seen: list[str] = []

        def consume(message: Any) -> bool:
            seen.append(body(message))
            return seen[-1] != "o1"

        self.pushing(consume)
        sender = self.producer()
        for number in range(3):
            sender.send(self.message(f"o{number}", message_group="g"))
        settle(seen, 5)
        self.say(" ".join(seen))

    def steady(self) -> None:
        """Send, at most 50 a second, and receive without end, a line each."""
        sender = self.producer()
        consumer = self.simple("steady", FilterExpression())

        def send() -> None:
            for number in range(1 << 30):
                with contextlib.suppress(Exception):
                    sender.send(self.message(str(number)))
                    self.say(f"sent {number}")
                time.sleep(0.02)

        threading.Thread(target=send, daemon=True).start()
        while True:
            try:
                for message in consumer.receive(32, 20):
                    self.say(f"got {body(message)}")
                    consumer.ack(message)
            except Exception:
                time.sleep(0.1)

    def signed(self, attempt: Callable[[], str]) -> None:
        """Say what the user of the environment, or nobody, did, or why it could not."""
        try:
            self.say(attempt())
        except Exception as error:
            self.say(f"failed / {error}".replace("\n", " "))

    def signed_send(self) -> None:
        def send() -> str:
            self.producer().send(self.message("signed"))
            return "sent"

        self.signed(send)

    def signed_receive(self) -> None:
        def receive() -> str:
            self.simple("signed-receive", FilterExpression())
            return "received"

        self.signed(receive)

    def signed_push(self) -> None:
        arrived = threading.Event()

        def consume(message: Any) -> bool:
            arrived.set()
            return True

        def push() -> str:
            self.pushing(consume)
            self.producer().send(self.message("signed"))
            return "pushed" if arrived.wait(30) else "failed / silence"

        self.signed(push)


def body(message: Any) -> str:
    return str(message.body.decode())


def bodies(messages: list[Any]) -> str:
    return " ".join(sorted(map(body, messages)))


def receive(consumer: Any, count: int, seconds: float) -> list[Any]:
    got: list[Any] = []
    end = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < end:
        got += consumer.receive(16, 20)
    return got


def settle(seen: list[str], wanted: int) -> None:
    """Wait for so many deliveries; then for what the proxy does later, and for one too many."""
    end = time.monotonic() + 90
    while len(seen) < wanted and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(int(os.environ["SETTLE_SECONDS"]))


def main() -> None:
    failed = threading.Event()

    def run(name: str) -> None:
        try:
            getattr(Scenario(name), name.replace("-", "_"))()
        except BaseException:
            traceback.print_exc()
            failed.set()

    threads = [threading.Thread(target=run, args=(name,)) for name in sys.argv[4:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.flush()
    os._exit(failed.is_set())


main()
