"""Sends to a controller group while its masters die, and counts what is left.

Four senders each send one message after another to whichever broker the name server calls the
master. Every few seconds the master is killed, or stopped for longer than the controllers wait, and
comes back; once, the leader of the controllers is killed. At the end every message that was
acknowledged has to be where it was acknowledged, and none may be there twice: in every log, and for
a consumer that reads from the master.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pocketmq.message.record import Record, iter_records

from ..harness import ours, wire
from ..harness.controllers import Controllers, spawn_replica
from ..harness.official import Server
from ..harness.ports import OFFICIAL_BROKER_SPAN, free_block
from ..harness.reading import read_queue

GROUP = "failover"
TOPIC = "Failover"
SENDERS = 4
STOP_SECONDS = 14.0  # longer than the controllers wait for a heartbeat
SETTLE_SECONDS = 120.0
PATIENCE = 90.0  # with no send accepted, the next failure comes all the same

#: The loss-free settings; small files, so that they roll.
SETTINGS = {
    "allAckInSyncStateSet": True,
    "minInSyncReplicas": 2,
    "mappedFileSizeCommitLog": 1 << 20,
    "haSendHeartbeatInterval": 1000,
    "haHousekeepingInterval": 5000,
    "slaveReadEnable": True,
}


@dataclass
class Outcome:
    """What a campaign found.

    Attributes:
        lost: acknowledged, but not at its place in the log of each member.
        unread: acknowledged, but not read at its place from the master.
        twice: stored at two queue offsets.
        shared: queue offsets that two records of one log have.
        after_kill, after_stop: seconds from each failure to the first send that was accepted;
            infinity when there was none within `PATIENCE`.
    """

    acknowledged: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    after_kill: list[float] = field(default_factory=list)
    after_stop: list[float] = field(default_factory=list)
    same_logs: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether everything is where it was acknowledged, and only there."""
        return self.same_logs and not (self.lost or self.unread or self.twice or self.shared)

    def report(self) -> str:
        lines = [
            f"{self.acknowledged} acknowledged, {len(self.lost)} lost, "
            f"{len(self.unread)} not read, {len(self.twice)} twice, "
            f"{len(self.shared)} offsets of two messages"
        ]
        for what, times in (("killed", self.after_kill), ("stopped", self.after_stop)):
            if times:
                lines.append(
                    f"master {what} {len(times)} times: the next send is accepted after "
                    f"{_shown(statistics.median(times))} (median), {_shown(max(times))} (worst)"
                )
        lines.append(f"logs are {'the same' if self.same_logs else 'NOT the same'}")
        lines.append(f"not acknowledged: {dict(self.refused)}")
        return "\n".join(lines)


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if math.isfinite(seconds) else f">{PATIENCE:.0f} s"


class Campaign:
    """A group of brokers of the given makes, in a directory. Of three controllers the leader is
    killed once; a single one is left alone."""

    def __init__(self, directory: Path, makes: Sequence[str], controllers: Controllers) -> None:
        self._directory = directory
        self._makes = list(makes)
        self._controllers = controllers
        self._namesrv = ours.start_name_server(directory)
        self._ports = [free_block(OFFICIAL_BROKER_SPAN) for _ in makes]
        self._members: list[Server] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._places: dict[str, int] = {}  # body → queue offset
        self._accepted: list[float] = []  # when sends began that were accepted
        self._stopping = threading.Event()
        self.outcome = Outcome()

    def run(self, seconds: float, *, every: float = 10.0, stops: bool = True) -> Outcome:
        """Send for so long, with a failure every so often."""
        try:
            self._members = [self._spawn(n) for n in range(len(self._makes))]
            self._controllers.wait_for_set(GROUP, set(range(1, len(self._makes) + 1)), 120)
            senders = [threading.Thread(target=self._send) for _ in range(SENDERS)]
            for sender in senders:
                sender.start()
            try:
                self._fail(seconds, every, stops)
            finally:
                self._stopping.set()
                for sender in senders:
                    sender.join()
            self._settle()
            self._check()
            return self.outcome
        finally:
            self.close()

    def close(self) -> None:
        """Kill what was started here."""
        self._stopping.set()
        for member in self._members:
            member.process.kill()
        self._namesrv.process.kill()

    def _spawn(self, number: int) -> Server:
        return spawn_replica(
            self._makes[number], self._directory, self._namesrv.address, self._controllers,
            group=GROUP, member=f"member{number}", port=self._ports[number], settings=SETTINGS,
        )  # fmt: skip

    # --- sending ------------------------------------------------------------------------------

    def _master(self) -> str:
        """The master's address, as a client finds it; "" while there is none."""
        try:
            answer = wire.call(self._namesrv.address, wire.GET_BROKER_CLUSTER_INFO)
        except OSError:
            return ""
        text = re.sub(r"([{,])(\d+):", r'\1"\2":', answer.body.decode())
        table = json.loads(text).get("brokerAddrTable") or {}
        return str(table.get(GROUP, {}).get("brokerAddrs", {}).get("0", ""))

    def _send(self) -> None:
        master = ""
        while not self._stopping.is_set():
            master = master or self._master()
            if not master:
                time.sleep(0.02)
                continue
            body = f"message {next(self._numbers)} " + "." * 200
            began = time.monotonic()
            try:
                answer = wire.call(
                    master, 10,
                    {
                        "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102",
                        "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0",
                        "bornTimestamp": "0", "flag": "0", "properties": "",
                        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
                    },
                    body.encode(), timeout=4.0,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                self._note(type(error).__name__)
                master = ""
                continue
            if answer.code == 0:
                with self._lock:
                    self._places[body] = int(answer.ext_fields["queueOffset"])
                    self._accepted.append(began)
            else:
                self._note(f"code {answer.code}")
                master = ""
                time.sleep(0.02)

    def _note(self, what: str) -> None:
        with self._lock:
            self.outcome.refused[what] += 1

    # --- failures -----------------------------------------------------------------------------

    def _fail(self, seconds: float, every: float, stops: bool) -> None:
        end = time.monotonic() + seconds
        leader_killed = len(self._controllers.processes) < 3
        for number in itertools.count():
            if self._pause(min(every, end - time.monotonic()), end):
                return
            if not leader_killed and time.monotonic() > end - seconds / 2:
                leader_killed = True
                leader = self._controllers.addresses.index(self._controllers.leader())
                self._controllers.processes[leader].kill()
                self._pause(2.0, end)
                self._controllers.restart(leader)
                continue
            index = self._master_index()
            if index is None:
                continue
            if stops and number % 2:
                self._stop_master(index)
            else:
                self._kill_master(index)

    def _pause(self, seconds: float, end: float) -> bool:
        """Wait; return whether the campaign is over."""
        time.sleep(max(seconds, 0.0))
        return time.monotonic() >= end

    def _master_index(self) -> int | None:
        master = self._master()
        return next((n for n, m in enumerate(self._members) if m.address == master), None)

    def _kill_master(self, index: int) -> None:
        began = time.monotonic()
        self._members[index].process.kill()
        self._await_accepted(began, self.outcome.after_kill)
        self._members[index] = self._spawn(index)

    def _stop_master(self, index: int) -> None:
        process = self._members[index].process
        began = time.monotonic()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            self._await_accepted(began, self.outcome.after_stop)
            time.sleep(max(STOP_SECONDS - (time.monotonic() - began), 0.0))
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def _await_accepted(self, began: float, times: list[float]) -> None:
        deadline = began + PATIENCE
        while time.monotonic() < deadline:
            with self._lock:
                after = [at for at in self._accepted if at > began + 0.01]
            if after:
                times.append(after[0] - began)
                return
            time.sleep(0.02)
        times.append(math.inf)

    # --- at the end ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until all members are there and have everything."""
        everybody = set(range(1, len(self._makes) + 1))
        self._controllers.wait_for_set(GROUP, everybody, SETTLE_SECONDS)
        time.sleep(3.0)  # the confirmOffset travels with heartbeats

    def _check(self) -> None:
        """Read what every member has stored, and what the master shows."""
        outcome = self.outcome
        logs = [self._stored(member) for member in self._members]
        outcome.same_logs = all(log == logs[0] for log in logs)
        outcome.acknowledged = len(self._places)
        for log in logs:
            offsets = Counter(offset for offset, _ in log)
            outcome.shared += [offset for offset, count in offsets.items() if count > 1]
            outcome.lost += self._missing(log)
        bodies = Counter(body for _, body in logs[0])
        outcome.twice = [body for body, count in bodies.items() if count > 1]
        wire.until(lambda: bool(self._master()), "the group has a master")
        read = read_queue(self._master(), TOPIC, 0)
        outcome.unread = self._missing([_place(record) for record in read])

    def _missing(self, found: list[tuple[int, str]]) -> list[str]:
        """What was acknowledged and is not there, at its place."""
        there = set(found)
        return [body for body, offset in self._places.items() if (offset, body) not in there]

    @staticmethod
    def _stored(member: Server) -> list[tuple[int, str]]:
        """Queue offset and body of everything in the log of a member, in its order."""
        assert member.store is not None
        return [
            _place(record)
            for path in sorted((member.store / "commitlog").iterdir())
            for record in iter_records(path.read_bytes())
            if record.topic == TOPIC
        ]


def _place(record: Record) -> tuple[int, str]:
    return record.queue_offset, bytes(record.body).decode()
