"""The files, the program and the steps of docs/two-machines.md, with real processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.running import PROJECT, TIMEOUT, Running, environment
from tests.docs.test_guide import free_ports

PAGE = (PROJECT / "docs" / "two-machines.md").read_text()
PORTS = ("9876", "10911", "10912")
STORE = "pocketmq-broker"


def shown(name: str) -> str:
    """The text of a file that the page shows."""
    match = re.search(rf"^```\w+\n# {re.escape(name)}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None, name
    return match[1]


class Machine:
    """A directory with the files of one machine, whose ports are free ones of this machine."""

    def __init__(self, number: int, directory: Path, cluster: Cluster) -> None:
        self.number = number
        self.directory = directory
        self.cluster = cluster
        directory.mkdir()
        self.write("namesrv.conf", "namesrv.conf, on both machines")
        self.write("broker.conf", f"broker.conf, on machine {number}")
        self.namesrv: Running
        self.broker: Running

    @property
    def store(self) -> Path:
        return self.directory / STORE

    def write(self, name: str, on_page: str) -> None:
        text = shown(on_page)
        for number, ports in self.cluster.ports.items():
            text = text.replace(f"10.0.0.{number}:9876", f"127.0.0.1:{ports['9876']}")
        text = re.sub(r"10\.0\.0\.\d|0\.0\.0\.0", "127.0.0.1", text)
        for old, new in self.cluster.ports[self.number].items():
            text = re.sub(rf"(?<==){old}$", new, text, flags=re.MULTILINE)
        path = self.directory / name
        path.write_text(text.replace("/var/lib", str(self.directory)))
        path.chmod(0o600)

    def sed(self, *lines: tuple[str, str]) -> None:
        """Do what a `sed` of the page does, which has to find each line."""
        path = self.directory / "broker.conf"
        text = path.read_text()
        for old, new in lines:
            assert f"s/^{old}/{new}/" in PAGE or old == "inSyncReplicas=1"
            assert re.search(rf"^{old}$", text, re.MULTILINE)
            text = re.sub(rf"^{old}$", new, text, flags=re.MULTILINE)
        path.write_text(text)

    def start(self) -> None:
        self.broker = self.cluster.start("broker", self)

    def start_all(self) -> None:
        self.namesrv = self.cluster.start("namesrv", self)
        self.start()

    def kill(self) -> None:
        """The broker's process dies."""
        self.broker.process.kill()
        self.broker.process.wait()

    def die(self) -> None:
        """All processes of the machine die."""
        self.namesrv.process.kill()
        self.namesrv.process.wait()
        self.kill()

    def restart(self) -> None:
        assert self.broker.stop() == 0
        self.start()

    def copy_store_to(self, other: Machine) -> None:
        """The page's snapshot and rsync."""
        copy = self.directory / "pocketmq-copy"
        taken = self.cluster.run("store", "snapshot", str(self.store), str(copy))
        assert taken.returncode == 0, taken.stderr
        shutil.copytree(copy, other.store, dirs_exist_ok=True)


class Cluster:
    """Both machines, the producer, and the orders that it says are acknowledged."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.stack = stack
        self.ports = {
            number: dict(zip(PORTS, free_ports(len(PORTS)), strict=True)) for number in (1, 2)
        }
        tools = directory / "tools.yml"
        tools.write_text(shown("tools.yml"))
        tools.chmod(0o600)
        self.environment = {
            "NAMESRV_ADDR": ";".join(f"127.0.0.1:{ports['9876']}" for ports in self.ports.values()),
            "POCKETMQ_CREDENTIALS": str(tools),
            "SHOP_PASSWORD": "a long password",
            "PYTHONPATH": f"{directory}:{PROJECT}",
        }
        (directory / "orders.py").write_text(shown("orders.py"))
        self.one, self.two = (
            Machine(number, directory / f"machine-{number}", self) for number in (1, 2)
        )

    def start(self, kind: str, machine: Machine) -> Running:
        conf = str(machine.directory / f"{kind}.conf")
        server = self.stack.enter_context(Running(kind, "-c", conf, env=self.environment))
        server.wait_for("listening on")
        return server

    def start_all(self) -> None:
        for machine in (self.one, self.two):
            machine.namesrv = self.start("namesrv", machine)
        self.two.start()
        self.one.start()
        self.await_both_copies()
        assert self.run("topics", "create", "orders", "--queues", "4").returncode == 0
        self.producer = self.stack.enter_context(Running(module="orders", env=self.environment))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pocketmq", *arguments],
            env=environment(**self.environment), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def await_both_copies(self) -> None:
        """Return when `pocketmq status` exits with 0."""
        deadline = time.monotonic() + TIMEOUT
        while (status := self.run("status")).returncode:
            assert time.monotonic() < deadline, status.stdout + status.stderr

    def acknowledged(self) -> list[str]:
        return [line.split()[1] for line in self.producer.out if line.startswith("acknowledged ")]

    def await_failure(self, why: str, since: int) -> None:
        """Return when a send fails for this reason, by a line of the producer from `since` on."""
        deadline = time.monotonic() + TIMEOUT
        while not any(re.search(f"^waiting .*{why}", line) for line in self.producer.out[since:]):
            assert time.monotonic() < deadline, self.producer.everything()
            time.sleep(0.05)

    def goes_on(self) -> None:
        """Return when orders are acknowledged that were placed from now on."""
        number = len(self.acknowledged()) + 5
        self.producer.wait_for(rf"^acknowledged o-{number}$")

    def check(self) -> None:
        """Every order that was acknowledged before can be read."""
        acknowledged = self.acknowledged()
        pulled = self.run("pull", "orders", "--from", "begin")
        assert pulled.returncode == 0, pulled.stderr
        assert {*acknowledged} <= {*pulled.stdout.split()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.start_all()
        cluster.goes_on()
        yield cluster


ONE_COPY = ("inSyncReplicas=2", "inSyncReplicas=1")
TWO_COPIES = ("inSyncReplicas=1", "inSyncReplicas=2")
TO_MASTER = ("brokerId=1", "brokerId=0"), ("brokerRole=SLAVE", "brokerRole=SYNC_MASTER")
TO_SLAVE = ("brokerId=0", "brokerId=1"), ("brokerRole=SYNC_MASTER", "brokerRole=SLAVE")
REFUSED = "in-sync replicas not enough"


def test_the_slave_dies(cluster: Cluster) -> None:
    master, slave = cluster.one, cluster.two
    since = len(cluster.producer.out)
    slave.kill()
    cluster.await_failure(REFUSED, since)
    slave.start()
    cluster.goes_on()
    since = len(cluster.producer.out)
    slave.die()
    shutil.rmtree(slave.store)
    cluster.await_failure(REFUSED, since)
    master.sed(ONE_COPY)
    master.restart()
    cluster.goes_on()
    cluster.check()
    master.copy_store_to(slave)
    slave.start_all()
    cluster.await_both_copies()
    master.sed(TWO_COPIES)
    master.restart()
    cluster.goes_on()
    cluster.check()


def test_the_master_dies(cluster: Cluster) -> None:
    old, new = cluster.one, cluster.two
    old.kill()
    old.start()
    cluster.goes_on()
    cluster.check()
    since = len(cluster.producer.out)
    old.die()
    cluster.await_failure("", since)
    new.sed(*TO_MASTER, ONE_COPY)
    new.restart()
    cluster.check()
    cluster.goes_on()
    old.store.rename(old.directory / f"{STORE}.old")
    old.sed(*TO_SLAVE)
    new.copy_store_to(old)
    old.start_all()
    cluster.await_both_copies()
    new.sed(TWO_COPIES)
    new.restart()
    cluster.goes_on()
    cluster.check()
    new.die()  # the other machine has everything again
    old.sed(*TO_MASTER, ONE_COPY)
    old.restart()
    cluster.check()
    cluster.goes_on()
