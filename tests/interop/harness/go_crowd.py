"""One Go application of each kind that tests/interop/go has, each with a topic and a group."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .go_client import GoClient


class GoCrowd:
    """The applications, each to be called on a thread of its own.

    Attributes:
        applications: the topics of each.
    """

    def __init__(self, go: GoClient, namesrv: str) -> None:
        self._go = go
        self._namesrv = namesrv
        kinds = (
            self.pushed, self.sql, self.orderly, self.broadcast, self.delayed, self.retried,
            self.pulled, self.transactions, self.requests,
        )  # fmt: skip
        self.applications = {kind: [f"Go_{kind.__name__}"] for kind in kinds}

    def _run(self, do: str, kind: Callable[[], None], *options: object) -> list[str]:
        """The bodies that one run prints, sorted."""
        [topic] = self.applications[kind]
        lines = self._go(
            do, "-namesrv", self._namesrv, "-topic", topic, "-group", f"G_{topic}", *options
        )
        return sorted(line.get("body", "") for line in lines)

    def _sent(self, kind: Callable[[], None], count: int, *options: object) -> list[str]:
        """The bodies of what it sends, sorted."""
        self._run("send", kind, "-n", count, *options)
        return sorted(f"go-sync-{n}" for n in range(count))

    def pushed(self) -> None:
        with ThreadPoolExecutor() as pool:
            pushed = pool.submit(
                self._run, "push", self.pushed, "-n", 60, "-expression", "TagA || TagB"
            )
            for tag, mode in (("TagA", "async"), ("TagC", "sync"), ("TagB", "batch")):
                self._run("send", self.pushed, "-n", 30, "-tag", tag, "-mode", mode)
        assert pushed.result() == sorted(
            f"go-{mode}-{n}" for n in range(30) for mode in ("async", "batch")
        )

    def sql(self) -> None:
        self._run("send", self.sql, "-n", 30)
        got = self._run("push", self.sql, "-n", 10, "-sql", "step >= 10 AND step < 20")
        assert got == [f"go-sync-{n}" for n in range(10, 20)]

    def orderly(self) -> None:
        sent = self._sent(self.orderly, 24)
        # Each is refused once.
        got = self._run("push", self.orderly, "-orderly", "-n", 48, "-fail", 1)
        assert got == sorted(sent * 2)

    def broadcast(self) -> None:
        sent = self._sent(self.broadcast, 20)
        with ThreadPoolExecutor() as pool:
            members = [
                pool.submit(self._run, "push", self.broadcast, "-broadcast", "-n", 20)
                for _ in range(2)
            ]
        assert [member.result() for member in members] == [sent, sent]

    def delayed(self) -> None:
        sent = self._sent(self.delayed, 10, "-delay", 1)
        assert self._run("push", self.delayed, "-n", 10) == sent

    def retried(self) -> None:
        sent = self._sent(self.retried, 5)
        assert self._run("push", self.retried, "-n", 10, "-fail", 1) == sorted(sent * 2)

    def pulled(self) -> None:
        sent = self._sent(self.pulled, 30)
        assert self._run("pull", self.pulled, "-n", 30) == sent

    def transactions(self) -> None:
        self._run("transaction", self.transactions, "-n", 10)
        got = self._run("push", self.transactions, "-n", 5, "-expression", "TagA")
        assert got == [f"go-transaction-{n}" for n in range(0, 10, 2)]

    def requests(self) -> None:
        got = self._run("request", self.requests, "-n", 5)
        assert got == [f"reply to request {n}" for n in range(5)]
