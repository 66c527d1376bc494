from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.errors import FrameError
from pocketmq.remoting.frames.splitter import MAX_FRAME, FrameSplitter


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


@given(
    st.lists(st.binary(min_size=4, max_size=300) | st.sampled_from([b"x" * 8192, b"y" * 20000])),
    st.lists(st.integers(1, 9000), min_size=1),
)
def test_frames_come_out_the_same_however_the_stream_is_cut(
    frames: list[bytes], sizes: list[int]
) -> None:
    stream = framed(*frames)
    splitter = FrameSplitter()
    out: list[bytes] = []
    at = 0
    for size in sizes * (len(stream) // sum(sizes) + 1):
        out += map(bytes, splitter.feed(stream[at : at + size]))
        at += size
    assert out == frames


def test_single_bytes_make_up_a_large_frame() -> None:
    frame = bytes(range(256)) * 200
    splitter = FrameSplitter()
    stream = framed(frame)
    for i in range(len(stream) - 1):
        assert not list(splitter.feed(stream[i : i + 1]))
    (out,) = splitter.feed(stream[-1:])
    assert out == frame


def test_views_of_large_frames_stay_valid_after_later_reads() -> None:
    first, second = b"a" * 50_000, b"b" * 50_000
    splitter = FrameSplitter()
    stream = framed(first, second)
    out = list(splitter.feed(stream[:60_000]))
    out += splitter.feed(stream[60_000:])
    assert [bytes(frame) for frame in out] == [first, second]


def test_the_limit_counts_the_length_bytes() -> None:
    splitter = FrameSplitter(limit=104)
    assert list(splitter.feed(framed(b"x" * 100))) == [b"x" * 100]
    with pytest.raises(FrameError, match="101"):
        list(splitter.feed(framed(b"x" * 101)))


def test_the_default_limit_is_that_of_the_reference() -> None:
    assert MAX_FRAME == 16_777_216
    assert not list(FrameSplitter().feed(struct.pack(">I", 16_777_212)))
    with pytest.raises(FrameError, match="16777213"):
        list(FrameSplitter().feed(struct.pack(">I", 16_777_213)))


@pytest.mark.parametrize("length", [0, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_bad_length_is_raised_after_the_frames_before_it(length: int) -> None:
    frames = FrameSplitter().feed(framed(b"good") + struct.pack(">I", length) + b"rest")
    assert next(frames) == b"good"
    with pytest.raises(FrameError, match=str(length)):
        next(frames)


def test_a_length_is_judged_as_soon_as_it_is_whole() -> None:
    splitter = FrameSplitter()
    assert not list(splitter.feed(b"GE"))
    with pytest.raises(FrameError):
        list(splitter.feed(b"T "))


def test_frames_can_be_left_out() -> None:
    splitter = FrameSplitter()
    stream = framed(b"first", b"second", b"third")
    frames = splitter.feed(stream)
    assert splitter.unread == (stream, 0)
    splitter.skip_to(len(framed(b"first")))
    assert next(frames) == b"second"
    assert splitter.unread == (stream, len(framed(b"first", b"second")))
    splitter.skip_to(len(stream))
    assert not list(frames)
    assert not splitter.begun


@pytest.mark.parametrize("left_out", [False, True])
def test_a_frame_that_spans_reads_can_be_left_out(left_out: bool) -> None:
    splitter = FrameSplitter()
    stream = framed(b"first", b"second")
    assert not list(splitter.feed(stream[:7]))
    frames = splitter.feed(stream[7:])
    whole, at = splitter.unread
    assert (bytes(whole), at) == (framed(b"first"), 0)
    if left_out:
        splitter.skip_to(len(whole))
    else:
        assert next(frames) == b"first"
    data, at = splitter.unread
    assert data[at:] == framed(b"second")
    assert list(frames) == [b"second"]


def test_what_was_not_yielded_comes_before_the_next_read() -> None:
    splitter = FrameSplitter()
    assert next(splitter.feed(framed(b"first", b"second")[:-1])) == b"first"
    data = framed(b"first", b"second")
    assert list(splitter.feed(data[-1:] + framed(b"third"))) == [b"second", b"third"]
