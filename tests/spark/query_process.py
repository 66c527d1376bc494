"""`pocketmq query` again and again in one process, since it is Java that takes long to start.

Spark is stopped behind each query, as the command does it, and started anew by the next one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from pocketmq.cli import main
from tests.spark.conftest import PROJECT


class Ended(NamedTuple):
    """What one query left."""

    returncode: int
    stdout: str
    stderr: str


class QueryProcess:
    """The process, the pipe of its answers, and the files that it writes to."""

    def __init__(self, requests: IO[str], answers: IO[str], outputs: Sequence[Path]) -> None:
        self._requests = requests
        self._answers = answers
        self._outputs = outputs
        self._read = [0] * len(outputs)

    def __call__(self, *arguments: str | Path, head: bool = False) -> Ended:
        """Run one query; `head`: nobody reads its output any more."""
        request = {"arguments": ["query", *map(str, arguments)], "head": head}
        print(json.dumps(request), file=self._requests, flush=True)
        answer = self._answers.readline()
        stdout, stderr = map(self._new, range(len(self._outputs)))
        assert answer, stderr
        return Ended(int(answer), stdout, stderr)

    def _new(self, number: int) -> str:
        """What a file has that was not there before."""
        content = self._outputs[number].read_bytes()[self._read[number] :]
        self._read[number] += len(content)
        return content.decode()


@contextmanager
def query_process(directory: Path) -> Iterator[QueryProcess]:
    """Start the process elsewhere than in the project's directory, as users do."""
    outputs = [directory / "out", directory / "err"]
    reading, writing = os.pipe()
    with outputs[0].open("w") as stdout, outputs[1].open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.query_process", str(writing)],
            cwd=directory,
            env=command_environment(),
            pass_fds=[writing],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )
    os.close(writing)
    assert process.stdin is not None
    with open(reading, encoding="ascii") as answers:
        try:
            yield QueryProcess(process.stdin, answers, outputs)
        finally:
            process.communicate()


def command_environment() -> dict[str, str]:
    """The environment of a query, whose local time is not UTC."""
    return {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "TZ": "Asia/Shanghai",
    }


def serve(answers: int) -> None:
    """Run what is asked for, until nothing more can come."""
    kept = os.dup(1)
    with open(answers, "w", encoding="ascii", buffering=1) as told:
        for line in sys.stdin:
            request = json.loads(line)
            if request["head"]:
                reading, writing = os.pipe()
                os.close(reading)
                os.dup2(writing, 1)
                os.close(writing)
            code = main(request["arguments"])
            sys.stdout.flush()
            os.dup2(kept, 1)
            print(int(code), file=told)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
