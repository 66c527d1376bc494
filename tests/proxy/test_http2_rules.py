"""What RFC 9113 asks of the server's end for each sequence of frames, however they are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hpack import Decoder, Encoder
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.proxy.transport.http2 import (
    PREFACE,
    DataReceived,
    Event,
    Http2Connection,
    ProtocolError,
    Reason,
    StreamOpened,
    StreamReset,
)
from pocketmq.proxy.transport.work_budget import WorkBudget
from tests.proxy.raw_frames import Kind, frame, frames_in

HEADERS = [(":method", "POST"), (":path", "/a.B/C"), ("content-type", "application/grpc")]
ANSWER = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]

BLOCK = Encoder().encode(HEADERS)
SETTINGS = frame(Kind.SETTINGS, 0, 0)
START = PREFACE + SETTINGS
#: Flags.
END, ACK, WHOLE, PADDED, PRIORITY = 1, 1, 4, 8, 32


def setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def headers(stream_id: int, flags: int = WHOLE) -> bytes:
    return frame(Kind.HEADERS, flags, stream_id, BLOCK)


def call(stream_id: int) -> bytes:
    return headers(stream_id) + frame(Kind.DATA, END, stream_id, b"question")


def reset(stream_id: int) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream_id, number(Reason.CANCEL))


def window(stream_id: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, number(increment))


PING = frame(Kind.PING, 0, 0, b"12345678")
GOAWAY = frame(Kind.GOAWAY, 0, 0, bytes(8))
UNKNOWN = frame(0x77, 0xFF, 3, b"extension")


class Served:
    """A connection whose calls are answered as soon as their request is complete."""

    def __init__(self, **options: object) -> None:
        self.server = Http2Connection(**options)  # type: ignore[arg-type]
        self.events: list[Event] = []
        self.output = b""
        self.over = ""
        self._begun: set[int] = set()

    def take(self, data: bytes) -> None:
        if self.over:
            return
        try:
            for event in self.server.receive(data):
                if event is not None:
                    self.events.append(event)
                if isinstance(event, StreamOpened | DataReceived) and event.ended:
                    self.answer(event.stream_id)
        except ProtocolError as error:
            self.over = str(error)
        self.output += self.server.take_output()

    def answer(self, stream_id: int) -> None:
        """Answer a call, once."""
        if stream_id in self._begun:
            return
        self._begun.add(stream_id)
        self.server.send_headers(stream_id, ANSWER)
        self.server.send_data(stream_id, b"answer %d" % stream_id)
        self.server.send_trailers(stream_id, TRAILERS)

    @property
    def answered(self) -> list[int]:
        """The streams whose answers have ended."""
        decoder = Decoder()
        found = []
        for kind, stream_id, payload in frames_in(self.output):
            if kind == Kind.HEADERS:
                fields: list[object] = list(decoder.decode(payload))
                if ("grpc-status", "0") in fields:
                    found.append(stream_id)
        return found

    @property
    def resets(self) -> list[tuple[int, Reason]]:
        """The streams that the server reset, and why."""
        return [
            (stream_id, Reason(int.from_bytes(payload, "big")))
            for kind, stream_id, payload in frames_in(self.output)
            if kind == Kind.RST_STREAM
        ]

    @property
    def goodbye(self) -> Reason | None:
        """Why the server ended the connection."""
        for kind, _, payload in frames_in(self.output):
            if kind == Kind.GOAWAY:
                return Reason(int.from_bytes(payload[4:8], "big"))
        return None


@dataclass
class Case:
    """Frames behind SETTINGS, and what comes of them: a connection error, resets, answers."""

    name: str
    frames: bytes
    goodbye: Reason | None = None
    resets: Sequence[tuple[int, Reason]] = ()
    answered: Sequence[int] = ()


P = Reason.PROTOCOL_ERROR
CASES = [
    Case("a call", call(1), answered=[1]),
    Case("calls that overlap", headers(1) + call(3) + frame(Kind.DATA, END, 1), answered=[3, 1]),
    Case("trailers end a request", headers(1) + headers(1, WHOLE | END), answered=[1]),
    Case("a padded request", headers(1) + frame(Kind.DATA, END | PADDED, 1, b"\2xx\0\0"),
         answered=[1]),
    Case("a block in parts", frame(Kind.HEADERS, END, 1, BLOCK[:3])
         + frame(Kind.CONTINUATION, 0, 1, BLOCK[3:9])
         + frame(Kind.CONTINUATION, WHOLE, 1, BLOCK[9:]),
         answered=[1]),
    Case("a call with a priority", frame(Kind.HEADERS, WHOLE | END | PRIORITY, 1, bytes(5) + BLOCK),
         answered=[1]),
    # --- what is ignored
    Case("an unknown frame", UNKNOWN + call(1), answered=[1]),
    Case("unknown flags", frame(Kind.PING, 0xFE, 0, bytes(8)) + call(1), answered=[1]),
    Case("an unknown setting", frame(Kind.SETTINGS, 0, 0, setting(0x99, 7)) + call(1),
         answered=[1]),
    Case("the reserved bit", frame(Kind.HEADERS, WHOLE | END, 1 << 31 | 1, BLOCK), answered=[1]),
    Case("a priority of an idle stream", frame(Kind.PRIORITY, 0, 9, bytes(5)) + call(1),
         answered=[1]),
    Case("a window for an answered call", call(1) + window(1, 5_000) + call(3), answered=[1, 3]),
    Case("a reset of an answered call", call(1) + reset(1) + call(3), answered=[1, 3]),
    Case("a reset of a reset call", headers(1) + reset(1) + reset(1) + call(3), answered=[3]),
    Case("settings again", SETTINGS + call(1) + SETTINGS, answered=[1]),
    # --- the client says goodbye
    Case("goodbye before anything", GOAWAY + PING),
    Case("goodbye with a call in flight", headers(1) + GOAWAY + frame(Kind.DATA, END, 1),
         answered=[1]),
    Case("goodbye and then frames of every kind",
         headers(1) + headers(3) + GOAWAY + PING + SETTINGS + frame(Kind.SETTINGS, ACK, 0)
         + window(0, 9_999) + frame(Kind.DATA, 0, 1, b"half") + reset(3) + UNKNOWN + GOAWAY
         + frame(Kind.DATA, END, 1, b"half"),
         answered=[1]),
    Case("telemetry ends, goodbye, ping", headers(1) + frame(Kind.DATA, END, 1) + GOAWAY + PING,
         answered=[1]),
    # --- errors of one stream
    Case("data after a reset", headers(1) + reset(1) + frame(Kind.DATA, 0, 1, b"x") + call(3),
         resets=[(1, Reason.STREAM_CLOSED)], answered=[3]),
    Case("headers after a reset", headers(1) + reset(1) + headers(1) + call(3),
         resets=[(1, Reason.STREAM_CLOSED)], answered=[3]),
    Case("data after an answered request", call(1) + frame(Kind.DATA, 0, 1, b"x") + call(3),
         resets=[(1, Reason.STREAM_CLOSED)], answered=[1, 3]),
    Case("a window of a stream beyond 2^31-1", headers(1) + window(1, (1 << 31) - 1) + call(3),
         resets=[(1, Reason.FLOW_CONTROL_ERROR)], answered=[3]),
    # --- errors of the connection
    Case("data on an idle stream", frame(Kind.DATA, 0, 1, b"x"), P),
    Case("a reset of an idle stream", reset(7), P),
    Case("a window of an idle stream", window(7, 9), P),
    Case("data on stream 0", frame(Kind.DATA, 0, 0, b"x"), P),
    Case("headers on stream 0", headers(0), P),
    Case("settings on a stream", frame(Kind.SETTINGS, 0, 1), P),
    Case("a ping on a stream", frame(Kind.PING, 0, 1, bytes(8)), P),
    Case("a goodbye on a stream", frame(Kind.GOAWAY, 0, 1, bytes(8)), P),
    Case("headers with an even stream", headers(2), P),
    Case("a stream below another", call(5) + call(3), P, answered=[5]),
    Case("headers again that do not end", headers(1) + headers(1), P),
    Case("a stream that depends on itself", frame(Kind.PRIORITY, 0, 1, number(1) + b"\0"), P),
    Case("a push promise", headers(1) + frame(Kind.PUSH_PROMISE, WHOLE, 1, number(2) + BLOCK), P),
    Case("a continuation of nothing", frame(Kind.CONTINUATION, WHOLE, 1, b"\x88"), P),
    Case("a continuation of another stream",
         headers(1, 0) + frame(Kind.CONTINUATION, WHOLE, 3, b"\x88"), P),
    Case("a frame within a header block", headers(1, 0) + PING, P),
    Case("padding beyond the frame", headers(1) + frame(Kind.DATA, PADDED, 1, b"\xff"), P),
    Case("a block that is no header block", frame(Kind.HEADERS, WHOLE, 1, b"\xff\xff\xff"), P),
    Case("a window of 0", window(0, 0), P),
    Case("a window of the connection beyond 2^31-1", window(0, (1 << 31) - 1),
         Reason.FLOW_CONTROL_ERROR),
    Case("a first window beyond 2^31-1", frame(Kind.SETTINGS, 0, 0, setting(4, 1 << 31)),
         Reason.FLOW_CONTROL_ERROR),
    Case("a frame size below the least", frame(Kind.SETTINGS, 0, 0, setting(5, 1)), P),
    Case("half a setting", frame(Kind.SETTINGS, 0, 0, b"\0\4\0"), Reason.FRAME_SIZE_ERROR),
    Case("an acknowledgement with settings", frame(Kind.SETTINGS, ACK, 0, setting(4, 1)),
         Reason.FRAME_SIZE_ERROR),
    Case("a short ping", frame(Kind.PING, 0, 0, b"short"), Reason.FRAME_SIZE_ERROR),
    Case("a short reset", headers(1) + frame(Kind.RST_STREAM, 0, 1, b"\0"),
         Reason.FRAME_SIZE_ERROR),
    Case("a frame above the largest", frame(Kind.DATA, 0, 1, bytes(16_385)),
         Reason.FRAME_SIZE_ERROR),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reaction_to_frames(case: Case) -> None:
    served = Served()
    served.take(START + case.frames)
    assert (served.goodbye, served.resets, served.answered) == (
        case.goodbye,
        list(case.resets),
        list(case.answered),
    )
    assert bool(served.over) == (case.goodbye is not None)


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"?", PREFACE + PING, PREFACE + call(1),
     PREFACE + frame(Kind.SETTINGS, ACK, 0)],
)  # fmt: skip
def test_a_connection_that_does_not_begin_as_http2(first: bytes) -> None:
    served = Served()
    served.take(first)
    assert served.goodbye is Reason.PROTOCOL_ERROR


KINDS: Sequence[Callable[[int], bytes]] = [
    call,
    headers,
    lambda stream_id: headers(stream_id, WHOLE | END),
    lambda stream_id: frame(Kind.DATA, 0, stream_id, b"part"),
    lambda stream_id: frame(Kind.DATA, END, stream_id),
    reset,
    lambda stream_id: window(stream_id, 1_000),
    lambda stream_id: frame(Kind.PRIORITY, 0, stream_id, number(stream_id + 2) + b"\0"),
    lambda _: window(0, 2_000),
    lambda _: PING,
    lambda _: GOAWAY,
    lambda _: SETTINGS,
    lambda _: frame(Kind.SETTINGS, 0, 0, setting(4, 3)),
    lambda _: frame(Kind.SETTINGS, 0, 0, setting(4, 70_000) + setting(1, 1 << 30)),
    lambda _: frame(Kind.SETTINGS, ACK, 0),
    lambda _: UNKNOWN,
]
FRAMES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([1, 3, 5, 7])).map(
        lambda drawn: drawn[0](drawn[1])
    ),
    max_size=30,
).map(b"".join)


@example(headers(1) + GOAWAY + frame(Kind.DATA, END, 1) + PING, range(200))
@given(FRAMES, st.lists(st.integers(0, 600), max_size=60))
def test_the_same_bytes_get_the_same_answers_however_they_are_cut(
    frames: bytes, cuts: Iterable[int]
) -> None:
    data = START + frames
    whole, cut = Served(), Served()
    whole.take(data)
    edges = [0, *sorted({at for at in cuts if at < len(data)}), len(data)]
    for begin, end in pairwise(edges):
        cut.take(data[begin:end])
    assert (cut.events, cut.over, cut.output) == (whole.events, whole.over, whole.output)


@given(FRAMES, st.lists(st.sampled_from([1, 3, 5, 7]), max_size=20), st.integers(1, 60))
def test_calls_that_end_between_any_two_reads_break_nothing(
    frames: bytes, ends: Sequence[int], size: int
) -> None:
    served = Served()
    waiting = list(ends)
    data = START + frames
    for at in range(0, len(data), size):
        served.take(data[at : at + size])
        if waiting:
            stream_id = waiting.pop()
            served.answer(stream_id)
            served.server.reset(stream_id, Reason.CANCEL)
    assert served.server.waiting >= 0
    assert served.goodbye is None or served.over


def test_what_is_sent_before_a_goodbye_is_not_lost() -> None:
    served = Served()
    served.take(START + headers(1))
    served.server.send_headers(1, ANSWER)
    served.server.send_data(1, b"begun")
    served.take(GOAWAY + PING)
    served.server.send_trailers(1, TRAILERS)
    served.take(frame(Kind.SETTINGS, ACK, 0))
    assert served.answered == [1]
    assert frame(Kind.PING, ACK, 0, b"12345678") in served.output


# --- the price of work --------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def odd(first: int, count: int) -> Iterable[int]:
    return range(first, first + 2 * count, 2)


OPEN_STREAMS = b"".join(headers(stream_id) for stream_id in odd(1, 1_990))
FLOODS = {
    "pings": (b"", PING),
    "settings": (b"", SETTINGS),
    "acknowledged settings": (b"", frame(Kind.SETTINGS, ACK, 0)),
    "settings that nobody knows": (b"", frame(Kind.SETTINGS, 0, 0, setting(99, 1) * 2_000)),
    "priorities": (b"", frame(Kind.PRIORITY, 0, 1, number(3) + b"\0")),
    "unknown frames": (b"", UNKNOWN),
    "goodbyes": (b"", GOAWAY),
    "empty data": (headers(1), frame(Kind.DATA, 0, 1)),
    "padding": (headers(1), frame(Kind.DATA, PADDED, 1, b"\0")),
    "data in single octets": (headers(1), frame(Kind.DATA, 0, 1, b"x")),
    "data of a stream that is over": (headers(1) + reset(1), frame(Kind.DATA, 0, 1, b"x")),
    "windows": (headers(1), window(1, 1)),
    "windows of a stream that is over": (headers(1) + reset(1), window(1, 1)),
    "first windows with open streams": (
        OPEN_STREAMS,
        frame(Kind.SETTINGS, 0, 0, setting(4, 1)) + frame(Kind.SETTINGS, 0, 0, setting(4, 2)),
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_ends_the_connection(name: str) -> None:
    begin, flood = FLOODS[name]
    clock = Clock()
    served = Served(budget=WorkBudget(clock))
    served.take(START + begin)
    assert not served.over
    frames = 0
    while not served.over:
        # More than 40,000 frames a second; those of an honest client come far slower.
        served.take(flood * 40)
        frames += 40
        clock.now += 0.001
        assert frames < 400_000, "nobody ends it"
    assert served.goodbye is Reason.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("answered", [0, 1, 100], ids=lambda count: f"{count} answered each time")
def test_calls_that_are_given_up_end_the_connection_whatever_is_answered(answered: int) -> None:
    served = Served(budget=WorkBudget(Clock()))
    served.take(START)
    stream_id = 1
    resets = 0
    while not served.over:
        for _ in range(100):
            served.take(headers(stream_id) + reset(stream_id))
            stream_id += 2
            resets += 1
        for _ in range(answered):
            served.take(headers(stream_id, WHOLE | END))
            stream_id += 2
        assert resets < 10_000
    assert served.goodbye is Reason.ENHANCE_YOUR_CALM


def test_continuations_without_end_end_the_connection() -> None:
    served = Served()
    served.take(START + headers(1, 0))
    for _ in range(10_000):
        served.take(frame(Kind.CONTINUATION, 0, 1))
    assert served.goodbye is not None


def test_an_honest_client_pays_with_its_calls_and_with_time() -> None:
    """Two seconds of 2,000 calls, each with windows of its own, and a ping for every tenth."""
    clock = Clock()
    served = Served(budget=WorkBudget(clock))
    served.take(START)
    for count, stream_id in enumerate(odd(1, 4_000)):
        served.take(call(stream_id) + window(0, 5_000) + window(stream_id, 5_000))
        if count % 10 == 0:
            served.take(PING)
        clock.now += 1 / 2_000
        served.output = b""
    assert not served.over


def test_connections_share_a_budget() -> None:
    address = WorkBudget(Clock(), burst=1_000)
    first, second, other = (
        Served(budget=WorkBudget(Clock(), shared=shared))
        for shared in (address, address, WorkBudget(Clock(), burst=1_000))
    )
    first.take(START + PING * 150)
    second.take(START + PING * 150)
    other.take(START + PING * 150)
    assert [bool(each.over) for each in (first, second, other)] == [False, True, False]


def in_debt(clock: Clock) -> WorkBudget:
    """A budget that others have used up, and keep used up."""
    shared = WorkBudget(clock, burst=100, rate=0)
    assert not shared.spend(101)
    return shared


def test_a_connection_that_causes_little_work_is_not_ended_for_what_others_cause() -> None:
    clock = Clock()
    shared = WorkBudget(clock, burst=1_000, rate=0)
    good, bad = Served(budget=WorkBudget(clock, shared=shared)), WorkBudget(clock, shared=shared)
    good.take(START)
    clock.now += 10
    while bad.spend(5):
        pass
    for stream_id in odd(1, 2_000):
        good.take(call(stream_id) + PING)
        good.output = b""
    assert not good.over
    for _ in range(1_000):  # such as a consumer that waits
        good.take(PING)
        clock.now += 1
    assert not good.over
    good.take(PING * 101)
    assert good.over


def test_new_connections_have_no_reserve() -> None:
    """Otherwise a client could connect again and again, and use up theirs."""
    clock = Clock()
    assert not WorkBudget(clock, shared=in_debt(clock)).spend(1)


def test_a_reserve_is_small_whatever_it_was_filled_by() -> None:
    clock = Clock()
    answered, old = (WorkBudget(clock, shared=in_debt(clock)) for _ in range(2))
    for _ in range(10_000):
        answered.earn(8)
        answered.shared = in_debt(clock)
    clock.now += 1_000_000
    for budget, most in (answered, 500), (old, 100):
        spent = 0
        while budget.spend(1):
            spent += 1
        assert spent == most


def test_a_budget_refills_with_time_and_not_above_its_burst() -> None:
    clock = Clock()
    budget = WorkBudget(clock, burst=100, rate=10)
    assert budget.spend(100)
    assert not budget.spend(1)
    clock.now += 5
    assert budget.spend(40)
    clock.now += 1_000
    assert budget.full
    assert not budget.spend(101)


def test_events_are_given_in_the_order_of_their_frames() -> None:
    served = Served()
    served.take(START + headers(1) + headers(3) + reset(1) + frame(Kind.DATA, END, 3, b"x"))
    assert [type(event) for event in served.events] == [
        StreamOpened, StreamOpened, StreamReset, DataReceived,
    ]  # fmt: skip
