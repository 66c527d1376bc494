"""The list of epochs of a replica, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.epochs import EpochEntry, EpochFile, EpochFileDamaged, Epochs

# As an official broker of 5.3.3 wrote it.
OFFICIAL = b"2\n1029888278\n1-0\n2-42140\n"


@st.composite
def epoch_lists(draw: st.DrawFn) -> Epochs:
    count = draw(st.integers(0, 6))
    epochs = sorted(draw(st.sets(st.integers(0, 40), min_size=count, max_size=count)))
    starts = sorted(draw(st.sets(st.integers(0, 200), min_size=count, max_size=count)))
    return Epochs(zip(epochs, starts, strict=True))


def test_the_file_is_the_official_one(tmp_path: Path) -> None:
    epochs = Epochs([(1, 0), (2, 42140)])
    assert epochs.encode() == OFFICIAL
    assert Epochs.decode(OFFICIAL) == epochs
    file = EpochFile(tmp_path / "epochFileCheckpoint")
    file.save(epochs)
    assert file.path.read_bytes() == OFFICIAL


@given(epoch_lists())
def test_a_list_reads_back(epochs: Epochs) -> None:
    assert Epochs.decode(epochs.encode()) == epochs


@given(epoch_lists())
def test_windows_line_ends_and_no_checksum_are_understood(epochs: Epochs) -> None:
    lines = epochs.encode().split(b"\n")
    assert Epochs.decode(b"\n".join([lines[0], b"0", *lines[2:]])) == epochs


def test_line_ends_of_windows_are_part_of_the_checksum() -> None:
    text = b"1-0\r\n2-42140\r\n"
    import zlib

    content = b"2\r\n%d\r\n%b" % (zlib.crc32(text) & 0x7FFFFFFF, text)
    assert Epochs.decode(content) == Epochs([(1, 0), (2, 42140)])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"2\n", "first two lines"),
        (b"2\n0\n1-0\n", "has 1 entries and says 2"),
        (b"1\n5\n1-0\n", "checksum"),
        (b"1\n0\n1:0\n", "not EPOCH-OFFSET"),
        (b"1\n0\n-1-0\n", "not EPOCH-OFFSET"),
        (b"2\n0\n2-0\n1-5\n", "follows"),
        (b"2\n0\n1-5\n2-5\n", "follows"),
        (b"x\n0\n", "invalid literal"),
        (b"1\n0\n1-0\xff\n", "can't decode"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Epochs.decode(content)


@given(epoch_lists(), st.integers(0, 50), st.integers(0, 250))
def test_an_entry_is_appended_if_both_grow(epochs: Epochs, epoch: int, start: int) -> None:
    grows = all(epoch > e.epoch and start > e.start for e in epochs)
    assert epochs.begun(epoch, start).entries == (
        (*epochs.entries, (epoch, start)) if grows else epochs.entries
    )


@given(epoch_lists(), st.integers(0, 250))
def test_cuts(epochs: Epochs, offset: int) -> None:
    assert all(entry.start < offset for entry in epochs.cut(offset))
    assert all(entry.start <= offset for entry in epochs.until(offset))
    assert set(epochs.cut(offset)) <= set(epochs.until(offset)) <= set(epochs)
    kept = epochs.expired(offset)
    assert kept.last == epochs.last
    assert kept.at(offset) == epochs.at(offset)


@given(epoch_lists(), st.integers(-5, 250))
def test_each_byte_has_the_newest_entry_before_it(epochs: Epochs, offset: int) -> None:
    before = [entry for entry in epochs if entry.start <= offset]
    assert epochs.at(offset) == (before[-1] if before else None)


# The four examples of EpochFileCacheTest: list, end, list, end, and what they have in common.
COMMON = [
    ([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 500)], 700, 700),
    ([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 400)], 600, 400),
    ([(1, 100), (2, 300), (3, 450)], 600, [(1, 100), (2, 300), (3, 500)], 700, 450),
    ([(1, 100), (2, 300)], 450, [(1, 100), (2, 300), (3, 500)], 700, 450),
    ([(1, 100)], 250, [(2, 100)], 250, None),
    ([], 250, [(2, 100)], 250, None),
]


@pytest.mark.parametrize(("own", "end", "other", "other_end", "common"), COMMON)
def test_where_two_logs_part(
    own: list[tuple[int, int]],
    end: int,
    other: list[tuple[int, int]],
    other_end: int,
    common: int | None,
) -> None:
    assert Epochs(own).common_end(end, Epochs(other), other_end) == common
    assert Epochs(other).common_end(other_end, Epochs(own), end) == common


@given(epoch_lists(), st.integers(0, 40), epoch_lists(), epoch_lists(), st.data())
def test_logs_part_where_their_histories_do(
    shared: Epochs, gap: int, own: Epochs, other: Epochs, data: st.DataObject
) -> None:
    """Both histories go on from `shared` with masters that the other one never had."""
    last = shared.last
    if last is None:
        return
    part = last.start + 1 + gap

    def after(entries: Epochs, parity: int) -> list[tuple[int, int]]:
        return [(last.epoch + 1 + 2 * e.epoch + parity, part + e.start) for e in entries]

    logs = []
    for entries, parity in ((own, 0), (other, 1)):
        more = after(entries, parity)
        if more:
            more[0] = (more[0][0], part)  # the first of them begins where the histories part
            more = [more[0], *(entry for entry in more[1:] if entry[1] > part)]
        end = part if not more else data.draw(st.integers(more[-1][1], more[-1][1] + 50))
        logs.append((Epochs((*shared, *more)), end))
    (one, end), (two, other_end) = logs
    assert one.common_end(end, two, other_end) == part


# --- the file ---------------------------------------------------------------------------------


def test_the_list_of_before_is_kept_and_used(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "epochFileCheckpoint")
    assert file.load() == Epochs()
    file.save(Epochs([(1, 0)]))
    file.save(Epochs([(1, 0), (2, 10)]))
    assert (tmp_path / "epochFileCheckpoint.bak").read_bytes() == Epochs([(1, 0)]).encode()
    for broken in (b"", b"2\n77\n1-0\n", b"0\n0\n"):
        file.path.write_bytes(broken)
        again = EpochFile(file.path)
        assert again.load() == Epochs([(1, 0)])
    again.save(Epochs([(1, 0), (3, 10)]))
    # What was broken is not a backup.
    assert (tmp_path / "epochFileCheckpoint.bak").read_bytes() == Epochs([(1, 0)]).encode()
    file.path.unlink()
    assert EpochFile(file.path).load() == Epochs([(1, 0)])


def test_an_empty_list_does_not_come_back(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "epochFileCheckpoint")
    file.save(Epochs([(1, 0)]))
    file.save(Epochs([(1, 0), (2, 10)]))
    file.save(Epochs())
    assert EpochFile(file.path).load() == Epochs()
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(b"1\n7\n1-0\n")
    with pytest.raises(EpochFileDamaged, match=r"checksum is wrong.*empty this store"):
        EpochFile(path).load()


def test_entries_are_what_they_say() -> None:
    epochs = Epochs([(1, 0), (4, 9)])
    assert repr(epochs) == "Epochs([1-0, 4-9])"
    assert epochs.last == EpochEntry(4, 9)
    assert (epochs.last_epoch, Epochs().last_epoch) == (4, -1)
    assert [epochs.end_of(entry, 30) for entry in epochs] == [9, 30]
    assert {epochs, Epochs([(1, 0), (4, 9)])} == {epochs}
