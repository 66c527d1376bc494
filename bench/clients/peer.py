"""A client under measurement: a process that takes commands.

One command is one line: its name, the name server, the topic, how many messages, and for `many`
and `each` how many of them are in flight. The answer is a line of JSON with `seconds`, `cpu`
(seconds of all threads, from the start of the client to its end) and `failed`; with `timed`, if
not all messages were sent within the `seconds`.

| command | does |
|---|---|
| one | sends, each when the one before is answered |
| many | sends, so many in flight |
| each | the same, in a request for each message (our client only; Java's does nothing else) |
| linger | posts into batches (our client only) |
| consume | reads the topic in a new group, by a handler that counts |
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench.contenders import Figures
from tests.interop.harness.official import PROJECT, jars, need

__all__ = ["ClientProcess", "java_client", "our_client"]


@dataclass
class ClientProcess(Figures):
    """One client and its figures so far; `argv` starts it, with a log beside it."""

    argv: Sequence[str | Path]
    log: Path
    failed: int = field(default=0, kw_only=True)

    def __enter__(self) -> Self:
        self._log = self.log.open("w")
        self._child = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=PROJECT, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()
        self._log.close()

    def run(
        self, command: str, namesrv: str, topic: str, messages: int, *more: int
    ) -> tuple[float, float]:
        """Messages a second, and microseconds of CPU time for each; raises RuntimeError when the
        process ended instead."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        words = (command, namesrv, topic, messages, *more)
        self._child.stdin.write(" ".join(map(str, words)) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
        answer = json.loads(line)
        self.failed += answer["failed"]
        timed = int(answer.get("timed", messages))
        speed = (timed - int(answer["failed"])) / float(answer["seconds"])
        return speed, 1e6 * float(answer["cpu"]) / messages


def our_client(directory: Path) -> ClientProcess:
    """Ours."""
    argv = [sys.executable, "-m", "bench.clients.ours"]
    return ClientProcess("pocketmq client", argv, directory / "our-client.log")


def java_client(directory: Path) -> ClientProcess:
    """The official one, compiled into `directory`; raises Unavailable without Java."""
    classes = directory / "classes"
    source = Path(__file__).with_name("java") / "ClientBench.java"
    subprocess.run([need("javac"), "-cp", f"{jars()}/*", "-d", classes, source], check=True)
    argv = [
        need("java"),
        "-Xmx512m",
        f"-Duser.home={directory}",  # RocketMQ's logs go to user.home/logs.
        "-cp",
        f"{classes}{os.pathsep}{jars()}/*",
        "ClientBench",
    ]
    return ClientProcess("official Java client 5.3.3", argv, directory / "java-client.log")
