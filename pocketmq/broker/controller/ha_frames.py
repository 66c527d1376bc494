"""The bytes between the HA ports of a controller group (AutoSwitchHAService).

The slave starts with a handshake. The master answers with its epochs. From these, the slave finds
where the two logs diverge, and truncates its log there. From then on the slave reports the end of
its log, and the master sends the bytes that follow; a transfer without bytes is a heartbeat. All
integers are big-endian. These bytes cannot be distinguished from those of classic replication, so
all members of a group must be in controller mode.
Reference: AutoSwitchHAClient, AutoSwitchHAConnection.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from pocketmq.store.epochs import Epochs

HANDSHAKE: Final = 1
TRANSFER: Final = 2

_HANDSHAKE: Final = Struct(">ihhq")
_REPORT: Final = Struct(">iq")
_EPOCHS: Final = Struct(">iiqi")
_ENTRY: Final = Struct(">iq")
_TRANSFER: Final = Struct(">iiqiqq")

TRANSFER_HEAD: Final = _TRANSFER.size
"""36 bytes."""
MOST_EPOCHS: Final = 1000
"""The official master's buffer cannot hold more."""
MOST_BODY: Final = 4 * 1024 * 1024 - TRANSFER_HEAD
"""Bytes of the largest body: an official slave never receives a larger one completely."""


class BadFrame(Exception):
    """The peer does not speak this protocol."""


class Handshake(NamedTuple):
    """The first frame of a slave.

    Attributes:
        broker_id: its id, assigned by its controller.
        from_last_file: an empty slave requests the newest file only.
        learner: it never becomes a member of the SyncStateSet.
    """

    broker_id: int
    from_last_file: bool = False
    learner: bool = False


class Report(NamedTuple):
    """The end of a slave's log: the physical offset after its last byte."""

    offset: int


class MasterEpochs(NamedTuple):
    """A master's answer to a handshake: its epochs, and the end of its log."""

    end: int
    epochs: Epochs


class Transfer(NamedTuple):
    """The header before bytes of a master's log.

    Attributes:
        offset: physical offset of the first byte; -1 while the master has none to send.
        size: number of bytes that follow; 0 for a heartbeat.
        epoch, epoch_start: the epoch of these bytes, and the physical offset where it begins.
        confirmed: the master's confirmOffset.
    """

    offset: int
    size: int
    epoch: int
    epoch_start: int
    confirmed: int


def encode_handshake(frame: Handshake) -> bytes:
    """Return the 16 bytes of a handshake."""
    return _HANDSHAKE.pack(HANDSHAKE, frame.from_last_file, frame.learner, frame.broker_id)


def encode_report(offset: int) -> bytes:
    """Return the 12 bytes of a report."""
    return _REPORT.pack(TRANSFER, offset)


def encode_epochs(frame: MasterEpochs) -> bytes:
    """Return the answer to a handshake. Of a longer list, it has the newest MOST_EPOCHS."""
    entries = frame.epochs.entries[-MOST_EPOCHS:]
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    return _EPOCHS.pack(HANDSHAKE, len(body), frame.end, frame.epochs.last_epoch) + body


def encode_transfer(frame: Transfer) -> bytes:
    """Return the header that precedes the bytes of the log."""
    offset, size, epoch, epoch_start, confirmed = frame
    return _TRANSFER.pack(TRANSFER, size, offset, epoch, epoch_start, confirmed)


class SlaveFrames:
    """Assembles the frames of a slave from reads of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Handshake | Report]:
        """Return the frames that are complete. Raises BadFrame."""
        data = self._rest + data if self._rest else data
        found: list[Handshake | Report] = []
        at = 0
        while len(data) - at >= 4:
            state = int.from_bytes(data[at : at + 4])
            if state == TRANSFER:
                if len(data) - at < _REPORT.size:
                    break
                offset = _REPORT.unpack_from(data, at)[1]
                if offset < 0:
                    raise BadFrame(f"it reports the physical offset {offset}")
                found.append(Report(offset))
                at += _REPORT.size
            elif state != HANDSHAKE:
                raise _strange(state)
            elif len(data) - at < _HANDSHAKE.size:
                break
            else:
                _, last_file, learner, broker_id = _HANDSHAKE.unpack_from(data, at)
                if broker_id <= 0:
                    raise BadFrame(f"its broker id is {broker_id}; controllers count from 1")
                found.append(Handshake(broker_id, last_file == 1, learner == 1))
                at += _HANDSHAKE.size
        self._rest = data[at:]
        return found


class MasterFrames:
    """Splits a master's bytes into frames as they arrive, without copying the bytes of the log.

    `feed` returns frames; each `Transfer` is followed by its bytes, in pieces as they arrive.
    """

    def __init__(self) -> None:
        self._head = bytearray()  # the received part of a header and the epochs that follow it
        self._left = 0  # bytes of the log still to be received

    def feed(self, data: memoryview) -> list[MasterEpochs | Transfer | memoryview]:
        """Return the frames and bytes in `data`, in order. Raises BadFrame."""
        found: list[MasterEpochs | Transfer | memoryview] = []
        at, length = 0, len(data)
        while at < length:
            if self._left:
                end = min(at + self._left, length)
                found.append(data[at:end])
                self._left -= end - at
                at = end
                continue
            end = min(at + self._wanted() - len(self._head), length)
            self._head += data[at:end]
            at = end
            if len(self._head) < self._wanted():
                continue
            if self._head[3] == HANDSHAKE:
                found.append(_master_epochs(self._head))
            else:
                transfer = _transfer(self._head)
                found.append(transfer)
                self._left = transfer.size
            self._head.clear()
        return found

    def _wanted(self) -> int:
        """Return the known size of the current frame, in bytes."""
        head = self._head
        if len(head) < 8:
            return 8
        state, size = int.from_bytes(head[:4]), int.from_bytes(head[4:8], signed=True)
        if state == TRANSFER:
            if not 0 <= size <= MOST_BODY:
                raise BadFrame(f"a frame of {size} bytes; at most {MOST_BODY} are allowed")
            return TRANSFER_HEAD
        if state == HANDSHAKE:
            if size % _ENTRY.size or not 0 <= size <= MOST_EPOCHS * _ENTRY.size:
                raise BadFrame(f"epochs of {size} bytes; at most {MOST_EPOCHS} epochs are allowed")
            return _EPOCHS.size + size
        raise _strange(state)


def _strange(state: int) -> BadFrame:
    """Return the error for an unknown state. The bytes of classic replication begin with an offset:
    up to 4 GiB, they have 0 in place of the state."""
    return BadFrame(
        f"a frame with state {state}; only {HANDSHAKE} and {TRANSFER} exist. If it is a "
        "broker, enableControllerMode must be the same on both brokers"
    )


def _master_epochs(data: bytearray) -> MasterEpochs:
    end = _EPOCHS.unpack_from(data)[2]
    try:
        return MasterEpochs(end, Epochs(_ENTRY.iter_unpack(memoryview(data)[_EPOCHS.size :])))
    except ValueError as error:
        raise BadFrame(f"its epochs are in disorder: {error}") from None


def _transfer(data: bytearray) -> Transfer:
    _, size, offset, epoch, epoch_start, confirmed = _TRANSFER.unpack(data)
    if offset < 0 and (size or offset != -1):
        raise BadFrame(f"a frame of {size} bytes for the physical offset {offset}")
    return Transfer(offset, size, epoch, epoch_start, confirmed)
