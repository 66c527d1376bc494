"""`python -m bench.leniency`: what leniency costs those who spell exactly, and those who do not.

The servers read JSON as fastjson does: keys in any case, with `_` and `-`, quotes and commas in odd
places. The exact spelling has a path of its own. The table compares, for some headers and bodies,

- a decoder that knows the exact spelling only;
- the servers' decoder, on the same text;
- the servers' decoder, on the same text with its keys capitalised (of a header: all but those in
  extFields, whose spelling is fixed), and in single quotes.

Figures are microseconds of this thread's CPU time per text, the least of many short runs, taken in
turn, so they hold on a busy machine too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, NamedTuple

import msgspec

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.serving.request import Request, RequestDecoder

from .stages import BODY, send_header

TEXTS = 64  # of a run
RUNS = 150
SUBSCRIPTIONS = 8
QUEUES = 16
HEADING = ("µs per text", "exact only", "servers", "ratio", "capitals", "single quotes")

_unpack_word = Layout(">I").unpack_from
_PREFIX = slice(4, 16)  # of a frame: its code, by which any decoder must find the header's type

Work = Callable[[Any], object]


class Case(NamedTuple):
    """One line of the table: two decoders, and what they are given."""

    title: str
    strict: Work
    served: Work
    exact: bytes
    capitals: bytes
    quotes: bytes


def least(works: list[tuple[Work, bytes]]) -> list[float]:
    """Microseconds per text of the quickest of RUNS runs of each, in turn."""
    best = [float("inf")] * len(works)
    for _ in range(RUNS):
        for place, (work, text) in enumerate(works):
            begin = time.thread_time_ns()
            for _ in range(TEXTS):
                work(text)
            best[place] = min(best[place], time.thread_time_ns() - begin)
    return [figure / 1000 / TEXTS for figure in best]


def header_case(title: str, code: RequestCode, header: Header, body: bytes = b"") -> Case:
    """A request's frame; `body` comes with it and is not looked at."""
    frame = encode_command(code, 7, header=header, body=body, language="JAVA")[4:]
    end = 4 + int.from_bytes(frame[:4])
    head = frame[4:end]
    decode = msgspec.json.Decoder(Request[type(header)], strict=False).decode  # type: ignore[misc]

    decoders = {frame[_PREFIX]: decode}

    def strict(frame: bytes) -> object:
        end = 4 + _unpack_word(frame)[0]
        head = frame[4:end]
        request = decoders[frame[_PREFIX]](head)
        body = frame[end:]
        if not body and end > len(frame):
            raise ValueError("the frame is cut off")
        request.head = head
        request.body = body
        return request

    def framed(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text + body

    outer, inner, rest = _split_ext_fields(head)
    return Case(
        title, strict, RequestDecoder({code: type(header)}).decode, frame,
        framed(_capitals(outer) + inner + _capitals(rest)), framed(head.replace(b'"', b"'")),
    )  # fmt: skip


def _split_ext_fields(head: bytes) -> tuple[bytes, bytes, bytes]:
    begin = head.index(b'"extFields":') + len(b'"extFields":')
    end = head.index(b"}", begin)
    return head[:begin], head[begin:end], head[end:]


def _capitals(text: bytes) -> bytes:
    """`text` with every key's first letter in capitals."""
    words = text.split(b'"')
    for place in range(1, len(words) - 1, 2):
        if words[place + 1].startswith(b":"):
            words[place] = words[place][:1].upper() + words[place][1:]
    return b'"'.join(words)


def body_case(title: str, body: Body) -> Case:
    kind = type(body)
    text = body.encode(standard_json=True)
    return Case(
        title, kind._exactly, kind.decode, text, _capitals(text), text.replace(b'"', b"'")
    )  # fmt: skip


def heartbeat() -> HeartbeatData:
    subscriptions = [
        SubscriptionData(topic=f"topic-{number}", sub_string="*", sub_version=number)
        for number in range(SUBSCRIPTIONS)
    ]
    consumer = ConsumerData(group_name="group", subscription_data_set=subscriptions)
    return HeartbeatData(client_id="127.0.0.1@1", consumer_data_set=[consumer])


def lock() -> LockBatchRequestBody:
    queues = [MessageQueue("topic", "broker-a", number) for number in range(QUEUES)]
    return LockBatchRequestBody(consumer_group="group", client_id="127.0.0.1@1", mq_set=queues)


def cases() -> tuple[Case, ...]:
    send: SendMessageRequestHeaderV2 = send_header(1, False)
    pull = PullMessageRequestHeader(
        consumer_group="group", topic="topic", queue_id=2, queue_offset=0, max_msg_nums=32,
        sys_flag=4, commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
    )  # fmt: skip
    return (
        header_case("header of a send", RequestCode.SEND_MESSAGE_V2, send, BODY),
        header_case("header of a pull", RequestCode.PULL_MESSAGE, pull),
        body_case(f"heartbeat, {SUBSCRIPTIONS} subscriptions", heartbeat()),
        body_case(f"lock of {QUEUES} queues", lock()),
    )


def check(case: Case) -> None:
    """Raises RuntimeError unless all spellings are understood alike."""
    wanted = _fields(case.strict(case.exact))
    for text in (case.exact, case.capitals, case.quotes):
        if _fields(case.served(text)) != wanted:
            raise RuntimeError(f"{case.title}: {text!r} is not understood")


def _fields(decoded: Any) -> object:
    return decoded.header if isinstance(decoded, Request) else decoded


def main() -> None:
    print(f"| {' | '.join(HEADING)} |\n|{'---|' * len(HEADING)}")
    for case in cases():
        check(case)
        strict, exact, capitals, quotes = least(
            [
                (case.strict, case.exact),
                (case.served, case.exact),
                (case.served, case.capitals),
                (case.served, case.quotes),
            ]
        )
        print(
            f"| {case.title} | {strict:.2f} | {exact:.2f} | {exact / strict:.2f} "
            f"| {capitals:.2f} | {quotes:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
