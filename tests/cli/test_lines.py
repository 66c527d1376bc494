"""Lines in pieces of any size: the same lines, numbered, within bounds."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.blocking_thread import BlockingThread
from pocketmq.cli.messages.lines import LineReader, Lines, LineSplitter, total_size


def split(pieces: list[bytes], max_line: int = 1000) -> list[Lines]:
    splitter = LineSplitter("file", max_line)
    return [lines for piece in pieces for lines in splitter.feed(piece)] + list(splitter.end())


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.data(),
)
def test_any_cut_gives_the_lines(
    lines: list[bytes], end: bytes, closed: bool, data: st.DataObject
) -> None:
    text = end.join(lines) + (end if closed and lines else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    found = split([piece for piece in pieces if piece])
    expected = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    if expected[-1] == b"" and not text.endswith(b"\r"):
        expected.pop()  # what follows the last line end is not a line
    assert [body for piece in found for body in piece.bodies] == expected
    assert sum(piece.read for piece in found) == len(text)
    numbers = [piece.first + i for piece in found for i in range(len(piece.bodies))]
    assert numbers == list(range(1, len(expected) + 1))


@pytest.mark.parametrize(
    ("pieces", "after"),
    [
        ([b"ab\nabcdef\n"], []),
        ([b"ab\nab", b"cd", b"ef"], []),
        ([b"ab\n", b"abcdef\nx\n"], [b"x"]),
        ([b"ab\nabcd", b"ef", b"gh\nx", b"y\n"], [b"xy"]),
    ],
    ids=["whole", "never ends", "at once", "in pieces"],
)
def test_a_line_over_the_limit_is_left_out(pieces: list[bytes], after: list[bytes]) -> None:
    found = split(pieces, max_line=4)
    assert [body for lines in found for body in lines.bodies] == [b"ab", None, *after]
    assert sum(lines.read for lines in found) == len(b"".join(pieces))


def test_a_line_of_exactly_the_limit_passes_with_crlf() -> None:
    assert [lines.bodies for lines in split([b"abcd\r", b"\n"], max_line=5)] == [[b"abcd"]]
    assert [lines.bodies for lines in split([b"abcd\n"], max_line=4)] == [[b"abcd"]]


async def test_files_are_read_in_turn_and_numbered_each(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a\nb\n" * 200_000)
    two.write_bytes(b"c\nno line end")
    thread = BlockingThread("test")
    reader = LineReader([str(one), str(two)], thread, max_line=100)
    pieces = [lines async for lines in reader]
    thread.close()
    assert max(lines.read for lines in pieces) <= 256 * 1024
    assert sum(len(lines.bodies) for lines in pieces if lines.source == str(one)) == 400_000
    assert pieces[-1].bodies == [b"no line end"]
    assert pieces[-1].first == 2
    assert total_size([str(one), str(two)]) == 800_000 + 13


def test_size_of_a_pipe_is_unknown(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert total_size([str(pipe)]) is None
