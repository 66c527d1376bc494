"""The whole demo: servers, traffic, a killed broker, an audit, Spark."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from pocketmq.client.admin import Admin
from pocketmq.client.errors import RemotingError
from pocketmq.demo import flights, spark_report
from pocketmq.demo.cluster import Cluster, ServerFailed
from pocketmq.demo.ledger import Audit, Ledger
from pocketmq.demo.screen import Screen
from pocketmq.demo.traffic import BATCH, RATE, Receiving, Sending
from pocketmq.message.message import Message
from pocketmq.remoting.serving.service import ExitCode, StopEvent
from pocketmq.remoting.serving.service import run as run_until_stopped

TOPIC = "flights"
QUEUES_PER_BROKER = 4
BROKERS = ("broker-a", "broker-b")
VICTIM = "broker-b"

#: Fractions of the messages after which the victim is killed, and restarted.
KILL_AT = 0.5
RESTART_AT = 0.65

CATCH_UP_SECONDS = 30.0

GO_ON = (
    "pocketmq serve                               a name server and a broker, in one process",
    "seq 100000 | pocketmq send numbers --batch 500",
    "pocketmq pull numbers --follow               in another terminal",
    "pocketmq query 'SELECT count(*) FROM numbers' --store ~/store",
    "Any RocketMQ client, Java, Go or other, can use 127.0.0.1:9876.",
)


class DemoFailed(Exception):
    """Something went wrong; the text says what."""


def run(console: Console) -> int:
    """Run the demo and return the exit code. No process or file remains."""
    screen = Screen(console)
    try:
        data = flights.data_file()
    except flights.DataSetMissing as error:
        console.print(f"[red]error:[/] {escape(str(error))}", highlight=False)
        return ExitCode.UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="pocketmq-demo-") as directory:
        story = Story(Path(directory), screen, data)
        code = run_until_stopped(story.messaging, exit_codes=_EXIT_CODES)
        if code != ExitCode.OK:
            return code
        if story.audit is None:
            return story.exit_code
        # From here on nothing else handles SIGTERM, and the directory has to be removed.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        stores = {name: Path(directory) / name for name in BROKERS}
        code = spark_report.show(screen, stores, TOPIC, story.ledger, Path(directory))
    screen.title("How to go on")
    for line in GO_ON:
        screen.line(line)
    return code


_EXIT_CODES = {
    ServerFailed: ExitCode.FAILURE,
    DemoFailed: ExitCode.FAILURE,
    RemotingError: ExitCode.FAILURE,
}


class Story:
    """The messaging part. `audit` is set if it completed, `exit_code` if a signal ended it."""

    def __init__(self, directory: Path, screen: Screen, data: Path) -> None:
        self.ledger = Ledger()
        self.audit: Audit | None = None
        self.exit_code = 0
        self._directory = directory
        self._screen = screen
        self._data = data

    async def messaging(self, stop: StopEvent) -> None:
        """Run the part; end early, without an audit, when `stop` is set."""
        playing = asyncio.ensure_future(self._play())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not playing.done():
            playing.cancel()
            self._screen.say("stopping")
        try:
            self.audit = await playing
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
            self.exit_code = stop.exit_code

    async def _play(self) -> Audit:
        say = self._screen.say
        self._screen.title("Messages: a name server, two brokers, one of them killed half-way")
        with self._screen.working("reading the data set"):
            messages = await asyncio.to_thread(lambda: list(flights.read(self._data, TOPIC)))
        say(f"{len(messages):,} {flights.origin()}")
        async with Cluster(self._directory, BROKERS) as cluster:
            say(f"name server (pid {cluster.name_server.pid}) at {cluster.namesrv}")
            for name, broker in cluster.brokers.items():
                say(f"{name} (pid {broker.pid}) at {broker.address}")
            async with Admin(namesrv=cluster.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES_PER_BROKER)
            say(f"topic {TOPIC}: {QUEUES_PER_BROKER} queues on each broker")
            say(f"sending {RATE:,} messages/s in batches of {BATCH}, pulling by long polls")
            with self._screen.progress(self.ledger, len(messages)) as update:
                await self._traffic(cluster, messages, update)
        audit = self.ledger.audit()
        self._tell(audit, len(messages))
        return audit

    async def _traffic(
        self, cluster: Cluster, messages: Sequence[Message], update: Callable[[], None]
    ) -> None:
        kill, restart = asyncio.Event(), asyncio.Event()
        milestones = {
            int(len(messages) * KILL_AT): kill,
            int(len(messages) * RESTART_AT): restart,
        }
        sending = Sending(self.ledger, milestones, update)
        receiving = Receiving(self.ledger, update)
        try:
            async with asyncio.TaskGroup() as group:
                received = group.create_task(receiving.run(cluster.namesrv, TOPIC))
                disaster = group.create_task(self._disaster(cluster, kill, restart))
                await sending.run(cluster.namesrv, messages)
                await disaster
                self._screen.say("all are acknowledged; the consumer goes on to the end")
                receiving.all_is_sent()
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await received
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        except TimeoutError:
            raise DemoFailed(
                f"not everything was pulled within {CATCH_UP_SECONDS:g} s: {self.ledger.audit()}"
            ) from None

    async def _disaster(
        self, cluster: Cluster, kill: asyncio.Event, restart: asyncio.Event
    ) -> None:
        broker = cluster.brokers[VICTIM]
        await kill.wait()
        await broker.kill()
        self._screen.say(
            f"{VICTIM} (pid {broker.pid}) killed with SIGKILL after "
            f"{self.ledger.acknowledged:,} acknowledged messages; the sends go on"
        )
        await restart.wait()
        began = asyncio.get_running_loop().time()
        await broker.start()
        seconds = asyncio.get_running_loop().time() - began
        self._screen.say(
            f"{VICTIM} started again (pid {broker.pid}): recovered, listening and registered "
            f"after {seconds:.2f} s"
        )

    def _tell(self, audit: Audit, total: int) -> None:
        brokers = self.ledger.acknowledged_by_broker
        shares = ", ".join(f"{brokers[name]:,} by {name}" for name in BROKERS)
        self._screen.say(f"{audit.acknowledged:,} of {total:,} acknowledged: {shares}")
        if audit.acknowledged != total or not audit.exact:
            raise DemoFailed(f"{audit.lost} acknowledged messages lost, {audit.twice} came twice")
        self._screen.say("each was pulled exactly once, from the place that was acknowledged")
        if audit.unacknowledged:
            self._screen.say(
                f"{audit.unacknowledged:,} more were stored when the kill cut off their answers, "
                "so they were sent again to the other broker"
            )
