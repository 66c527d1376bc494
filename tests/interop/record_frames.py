"""`python -m tests.interop.record_frames` writes requests of mqadmin about users and access lists
to tests/data/frames, with the signature of `root` (tests.interop.harness.secured)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pocketmq.remoting.frames.frame import FrameSplitter, decode_command
from tests.interop.harness import secured
from tests.interop.harness.ha_proxy import HaProxy
from tests.interop.harness.mqadmin import failure
from tests.interop.harness.official import PROJECT, JavaPeer
from tests.interop.harness.process import killed_at_the_end

FRAMES = PROJECT / "tests" / "data" / "frames"
ALICE = ("-s", "User:alice")
COMMANDS = (
    ("createUser", "-u", "alice", "-p", "alice-password", "-t", "normal"),
    ("updateUser", "-u", "alice", "-s", "enable"),
    ("getUser", "-u", "alice"),
    ("listUser", "-f", "ali"),
    ("createAcl", *ALICE, "-r", "Topic:a,Group:g*", "-a", "Pub,Sub", "-d", "Allow", "-i", "::1/64"),
    ("updateAcl", *ALICE, "-r", "Topic:a", "-a", "All", "-d", "Deny"),
    ("getAcl", *ALICE),
    ("listAcl", "-s", "alice", "-r", "Topic"),
    ("deleteAcl", *ALICE, "-r", "Topic:a"),
    ("deleteUser", "-u", "alice"),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pocketmq-frames-") as name, killed_at_the_end():
        directory = Path(name)
        namesrv = secured.start_name_server(directory)
        broker = secured.start_broker("ours", directory, namesrv.address, name="secured")
        peer = JavaPeer(directory)
        secured.write_tools(directory / f"java-peer-{peer.version}")
        tap = HaProxy(broker.address)
        for command in COMMANDS:
            text = peer.mqadmin(*command, "-b", tap.address, "-n", namesrv.address)
            assert failure(text) is None, text
        peer.close()
        tap.close()
        splitter = FrameSplitter()
        for piece in tap.pieces:
            if not piece.by_slave:
                continue
            for frame in splitter.feed(piece.data):
                code, data = decode_command(frame).code, len(frame).to_bytes(4) + bytes(frame)
                (FRAMES / f"mqadmin-{code}.bin").write_bytes(data)
                print(code, len(data))


if __name__ == "__main__":
    main()
