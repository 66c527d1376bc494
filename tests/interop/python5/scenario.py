"""What the official client for Python does with a proxy: `scenario.py ENDPOINT NAME`.

It prints one fact a line.

A program of its own, because the client's threads outlive a test.
"""

from __future__ import annotations

import os
import sys
import threading
import time
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

CONFIG = ClientConfiguration(sys.argv[1], Credentials(), request_timeout=5)


def say(text: str) -> None:
    print(f"> {text}", flush=True)


def made(topic: str, body: str, **fields: Any) -> Message:
    message = Message()
    message.topic = topic
    message.body = body.encode()
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def producer(topic: str, checker: Any = None) -> Any:
    begun = Producer(CONFIG, (topic,), checker) if checker else Producer(CONFIG, (topic,))
    begun.startup()
    return begun


def simple(topic: str, group: str, expression: FilterExpression) -> Any:
    consumer = SimpleConsumer(CONFIG, group, {topic: expression}, await_duration=5)
    consumer.startup()
    consumer.receive(1, 10)  # a new group begins at the end
    return consumer


def receive(consumer: Any, count: int, seconds: float) -> list[Any]:
    got: list[Any] = []
    end = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < end:
        got += consumer.receive(16, 20)
    return got


def bodies(messages: list[Any]) -> str:
    return " ".join(sorted(message.body.decode() for message in messages))


def normal() -> None:
    consumer = simple("PythonNormal", "python-tags", FilterExpression("a || b"))
    sender = producer("PythonNormal")
    for number in range(6):
        sender.send(made("PythonNormal", f"m{number}", tag="abc"[number % 3], keys=f"k{number}"))
    got = receive(consumer, 4, 30)
    say(f"tags {bodies(got)}")
    for message in got[1:]:
        consumer.ack(message)
    consumer.change_invisible_duration(got[0], 1)
    again = receive(consumer, 1, 30)
    say(f"again {bodies(again) == bodies(got[:1])} {again[0].delivery_attempt}")
    # The handle of a change counts (apache/rocketmq#9583).
    consumer.change_invisible_duration(again[0], 10)
    consumer.ack(again[0])
    say(f"left {len(receive(consumer, 1, 12))}")


def transaction() -> None:
    asked = threading.Event()

    class Checker(TransactionChecker):  # type: ignore[misc]
        def check(self, message: Any) -> Any:
            if message.body == b"orphan":
                asked.set()
                return TransactionResolution.COMMIT
            return TransactionResolution.UNKNOWN

    consumer = simple("PythonTransaction", "python-transaction", FilterExpression())
    sender = producer("PythonTransaction", Checker())
    for what in ("commit", "rollback", "orphan"):
        begun = sender.begin_transaction()
        sender.send(made("PythonTransaction", what), begun)
        if what == "commit":
            begun.commit()
        elif what == "rollback":
            begun.rollback()
    say(f"transaction {bodies(receive(consumer, 2, 60))}")
    say(f"asked {asked.wait(1)}")


def delay() -> None:
    consumer = simple("PythonDelay", "python-delay", FilterExpression())
    sender = producer("PythonDelay")
    sender.send(made("PythonDelay", "later", delivery_timestamp=int(time.time() + 3)))
    never = made("PythonDelay", "never", delivery_timestamp=int(time.time() + 6))
    handle = sender.send(never).recall_handle
    sender.recall_message("PythonDelay", handle)
    say(f"delayed {bodies(receive(consumer, 2, 15))}")


def push() -> None:
    attempts: dict[str, int] = {}

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Any) -> Any:
            body = message.body.decode()
            attempts[body] = attempts.get(body, 0) + 1
            fails = (body == "p1" and message.delivery_attempt < 2) or body == "p2"
            return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS

    topic = {"PythonPush": FilterExpression()}
    consumer = PushConsumer(CONFIG, "python-push", Listener(), topic)
    consumer.startup()
    time.sleep(2)
    sender = producer("PythonPush")
    for number in range(5):
        sender.send(made("PythonPush", f"p{number}"))
    time.sleep(20)
    say(f"push {dict(sorted(attempts.items()))}")


{"normal": normal, "delay": delay, "transaction": transaction, "push": push}[sys.argv[2]]()
sys.stdout.flush()
os._exit(0)
