"""The bytes between HA ports in controller mode, against what official brokers sent."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.controller.ha_frames import (
    MOST_BODY,
    MOST_EPOCHS,
    BadFrame,
    Handshake,
    MasterEpochs,
    MasterFrames,
    Report,
    SlaveFrames,
    Transfer,
    encode_epochs,
    encode_handshake,
    encode_report,
    encode_transfer,
)
from pocketmq.broker.replication.frames import encode_head
from pocketmq.broker.replication.frames import encode_report as classic_report
from pocketmq.store.epochs import Epochs

DATA = Path(__file__).parents[2] / "data" / "autoswitch"
I64 = st.integers(0, 2**63 - 1)
IDS = st.integers(1, 2**63 - 1)

handshakes = st.builds(Handshake, IDS, st.booleans(), st.booleans())
reports = st.builds(Report, I64)


@st.composite
def epoch_lists(draw: st.DrawFn) -> Epochs:
    count = draw(st.integers(0, 5))
    epochs = sorted(draw(st.sets(st.integers(0, 2**31 - 1), min_size=count, max_size=count)))
    starts = sorted(draw(st.sets(I64, min_size=count, max_size=count)))
    return Epochs(zip(epochs, starts, strict=True))


bodies = st.binary(max_size=80)


@st.composite
def transfers(draw: st.DrawFn) -> tuple[Transfer, bytes]:
    body = draw(bodies)
    epoch = draw(st.integers(0, 2**31 - 1))
    return Transfer(draw(I64), len(body), epoch, draw(I64), draw(I64)), body


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(st.lists(handshakes | reports, max_size=6), st.lists(st.integers(0, 10**6), max_size=8))
def test_what_a_slave_sends_reads_back(frames: list[Handshake | Report], cuts: list[int]) -> None:
    data = b"".join(
        encode_handshake(frame) if isinstance(frame, Handshake) else encode_report(frame.offset)
        for frame in frames
    )
    reader = SlaveFrames()
    found = [frame for piece in pieces(data, cuts) for frame in reader.feed(piece)]
    assert found == frames


@given(
    st.lists(st.builds(MasterEpochs, I64, epoch_lists()) | transfers(), max_size=6),
    st.lists(st.integers(0, 10**6), max_size=8),
)
def test_what_a_master_sends_reads_back(
    frames: list[MasterEpochs | tuple[Transfer, bytes]], cuts: list[int]
) -> None:
    data = b"".join(
        encode_epochs(frame)
        if isinstance(frame, MasterEpochs)
        else encode_transfer(frame[0]) + frame[1]
        for frame in frames
    )
    assert read(pieces(data, cuts)) == frames


def read(data: list[bytes]) -> list[MasterEpochs | tuple[Transfer, bytes]]:
    """What a master sent, each transfer with its bytes."""
    reader = MasterFrames()
    found: list[MasterEpochs | tuple[Transfer, bytes]] = []
    for piece in data:
        for item in reader.feed(memoryview(piece)):
            if isinstance(item, MasterEpochs):
                found.append(item)
            elif isinstance(item, Transfer):
                found.append((item, b""))
            else:
                before = found[-1]
                assert not isinstance(before, MasterEpochs)
                found[-1] = (before[0], before[1] + bytes(item))
    return found


# --- recorded ---------------------------------------------------------------------------------


def recorded(name: str) -> list[tuple[str, bytes]]:
    """Who sent which bytes, read for read."""
    found = []
    for line in (DATA / f"{name}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        sender, *parts = line.split()
        data = b""
        for part in parts:
            byte, star, count = part.partition("*")
            data += bytes.fromhex(byte) * (int(count) if star else 1)
        found.append((sender, data))
    return found


def frames_of(
    name: str,
) -> tuple[list[Handshake | Report], list[MasterEpochs | tuple[Transfer, bytes]]]:
    reads = recorded(name)
    reader = SlaveFrames()
    sent = [f for who, data in reads if who == "slave" for f in reader.feed(data)]
    return sent, read([data for who, data in reads if who == "master"])


@pytest.mark.parametrize("name", ["join", "rejoin"])
def test_official_bytes_are_ours(name: str) -> None:
    slave, master = frames_of(name)
    ours = b"".join(
        encode_handshake(f) if isinstance(f, Handshake) else encode_report(f.offset) for f in slave
    )
    assert ours == b"".join(data for who, data in recorded(name) if who == "slave")
    ours = b"".join(
        encode_epochs(f) if isinstance(f, MasterEpochs) else encode_transfer(f[0]) + f[1]
        for f in master
    )
    assert ours == b"".join(data for who, data in recorded(name) if who == "master")


def test_an_empty_slave_joins() -> None:
    """First all that there is, in one frame; then what comes, as it comes."""
    slave, master = frames_of("join")
    assert slave[:3] == [Handshake(2), Report(0), Report(0x500)]
    assert master[0] == MasterEpochs(0x500, Epochs([(1, 0)]))
    heartbeat, first = master[1:3]
    assert heartbeat == (Transfer(0, 0, 1, 0, 0x500), b"")
    assert not isinstance(first, MasterEpochs)
    assert first[0] == Transfer(0, 0x500, 1, 0, 0x500)
    sizes = [frame[0].size for frame in master[1:] if not isinstance(frame, MasterEpochs)]
    assert sizes == [0, 1280, 320, 320, 32768, 7452, 0, 0, 0]  # haTransferBatchSize cuts records


def test_a_former_master_joins_its_successor() -> None:
    """Nothing was to be cut: both logs are the same up to where epoch 2 begins."""
    slave, master = frames_of("rejoin")
    assert slave[:2] == [Handshake(1), Report(0xA49C)]
    assert master[0] == MasterEpochs(0xA85C, Epochs([(1, 0), (2, 0xA49C)]))
    assert all(
        frame[0][2:4] == (2, 0xA49C) for frame in master[1:] if not isinstance(frame, MasterEpochs)
    )


# --- strangers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"GET / HTTP/1.1\r\n", "state 1195725856"),
        (classic_report(0), "state 0; .* enableControllerMode must be the same"),
        (encode_report(0)[:3] + b"\x03" + bytes(8), "state 3"),
        (bytes.fromhex("00000002") + b"\xff" * 8, "offset -1"),
        (encode_handshake(Handshake(1))[:8] + bytes(8), "broker id is 0"),
    ],
)
def test_a_stranger_at_the_masters_port_is_recognized(data: bytes, fault: str) -> None:
    with pytest.raises(BadFrame, match=fault):
        SlaveFrames().feed(data)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"HTTP/1.1 400 Bad Request", "state 1213486160"),
        (encode_head(0, 0), "state 0; .* enableControllerMode must be the same"),  # a classic one
        (encode_transfer(Transfer(0, MOST_BODY + 1, 1, 0, 0)), "at most"),
        (encode_transfer(Transfer(0, -5, 1, 0, 0)), "-5 bytes"),
        (encode_transfer(Transfer(-2, 0, 1, 0, 0)), "offset -2"),
        (encode_transfer(Transfer(-1, 5, 1, 0, 0)), "offset -1"),
        (bytes.fromhex("00000001 0000000d") + bytes(12), "13 bytes"),
        (
            bytes.fromhex("00000001 00000018") + bytes(12) + bytes(24),
            "disorder",
        ),
    ],
)
def test_a_stranger_in_place_of_the_master_is_recognized(data: bytes, fault: str) -> None:
    with pytest.raises(BadFrame, match=fault):
        MasterFrames().feed(memoryview(data))


def test_a_master_without_messages_says_so() -> None:
    assert read([encode_transfer(Transfer(-1, 0, 1, 0, 0))]) == [(Transfer(-1, 0, 1, 0, 0), b"")]


def test_of_very_many_epochs_the_newest_are_told() -> None:
    epochs = Epochs((n, n) for n in range(MOST_EPOCHS + 10))
    [frame] = read([encode_epochs(MasterEpochs(10**6, epochs))])
    assert frame == MasterEpochs(10**6, Epochs(epochs.entries[10:]))


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    for reader in (SlaveFrames().feed, lambda data: MasterFrames().feed(memoryview(data))):
        with contextlib.suppress(BadFrame):
            reader(data)
