"""The programs and servers of docs/guide, run in the order of its pages."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.running import PROJECT, TIMEOUT, Running, environment

GUIDE = PROJECT / "docs" / "guide"
#: What the pages write with their ports and directories, each replaced by free ones.
PORTS = ("9876", "10911", "10912", "10921", "10922")


def free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


class Shop:
    """A directory with every file that the guide shows, and the address of its servers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.namesrv = f"127.0.0.1:{self.ports['9876']}"
        self.environment = {
            "NAMESRV_ADDR": self.namesrv,
            "PYTHONPATH": os.pathsep.join([str(directory), str(PROJECT)]),
            "PYSPARK_PYTHON": sys.executable,
            "SHOP_PASSWORD": "a long password",
        }
        for page in sorted(GUIDE.glob("*.md")):
            for name, text in files_of(page):
                for old, new in self.ports.items():
                    text = re.sub(rf"(?<==){old}\b", new, text)
                text = text.replace("=./", f"={directory}/")
                (directory / name).write_text(text)

    def run(self, *arguments: str, fails: bool = False, timeout: float = TIMEOUT) -> str:
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory, env=environment(**self.environment), capture_output=True,
            text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert (ended.returncode != 0) == fails, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr if fails else ended.stdout

    def place(self, number: str, item: str, amount: str) -> None:
        assert self.run("place.py", number, item, amount).startswith("SEND_OK in queue ")

    def program(self, module: str) -> Running:
        return Running(module=module, env=self.environment)

    @contextmanager
    def server(self, *arguments: str) -> Iterator[Running]:
        with Running(*arguments) as running:
            running.wait_for("listening on")
            yield running

    @contextmanager
    def single(self) -> Iterator[None]:
        ports = ["--namesrv-port", self.ports["9876"], "--listen-port", "0", "--no-grpc"]
        with self.server("serve", "--store", str(self.directory / "store"), *ports):
            yield

    @contextmanager
    def cluster(self) -> Iterator[Running]:
        """Name server, slave, and the master, which is returned."""
        files = {name: str(self.directory / f"{name}.conf") for name in ("namesrv", "slave")}
        first = ["-c", files["namesrv"]] if Path(files["namesrv"]).exists() else []
        with (
            self.server("namesrv", "--listen-port", self.ports["9876"], *first),
            self.server("broker", "-c", files["slave"], "-n", self.namesrv),
            self.master() as master,
        ):
            yield master

    @contextmanager
    def master(self) -> Iterator[Running]:
        conf = str(self.directory / "master.conf")
        with self.server("broker", "-c", conf, "-n", self.namesrv) as master:
            yield master

    def await_both_copies(self) -> None:
        """Return when `pocketmq status` sees nothing wrong: the slave is in sync."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            arguments = [sys.executable, "-m", "pocketmq", "status"]
            changed = environment(**self.environment)
            ended = subprocess.run(arguments, env=changed, capture_output=True, text=True)
            if ended.returncode == 0:
                return
            assert time.monotonic() < deadline, ended.stdout + ended.stderr

    def secure(self) -> None:
        """Do what the page about users says: its lines go into every file."""
        lines = (self.directory / "namesrv.conf").read_text().partition("\n")[2]
        for name in ("master", "slave"):
            path = self.directory / f"{name}.conf"
            path.write_text(path.read_text() + lines)
        for path in self.directory.glob("*.conf"):
            path.chmod(0o600)


def files_of(page: Path) -> list[tuple[str, str]]:
    """The files that a page shows: blocks whose first line is their name."""
    blocks = re.findall(r"```(?:python|properties)\n(.*?)```", page.read_text(), re.DOTALL)
    return [(re.match(r"# (\S+)\n", block)[1], block) for block in blocks]  # type: ignore[index]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_each_page_has_one_program_and_leads_to_the_next() -> None:
    pages = sorted(GUIDE.glob("*.md"))
    for page, following in zip(pages, [*pages[1:], None], strict=True):
        assert sum(name.endswith(".py") for name, _ in files_of(page)) == 1, page.name
        assert following is None or f"]({following.name})" in page.read_text().splitlines()[-1]
        assert len(page.read_text().split()) <= 400


def test_one_broker(shop: Shop) -> None:
    with shop.single():
        shop.place("o-1", "espresso", "2.5")
        pulled = shop.run("-m", "pocketmq", "pull", "orders")
        assert '{"number":"o-1","item":"espresso","amount":2.5}' in pulled
        with shop.program("billing") as billing:
            billing.wait_for(r"^billed o-1 2\.5$")
        with shop.program("strict_billing") as billing:
            shop.place("o-2", "refund", "-2.5")
            billing.wait_for(r"giving up")
            shop.place("o-3", "tea", "3")
            billing.wait_for(r"^billed o-3 3\.0$")
        assert "the amount is -2.5" in shop.run("-m", "pocketmq", "dlq", "list", "billing")
        shop.run("-m", "pocketmq", "dlq", "resend", "billing")
        lines = shop.run("kitchen.py").splitlines()
    for number in ("o-1", "o-2"):
        steps = [line.split()[1] for line in lines if line.startswith(number)]
        assert steps == ["ordered", "brewed", "served"]


def test_the_test(shop: Shop) -> None:
    assert "1 passed" in shop.run("-m", "pytest", "-q", "test_billing.py")


def test_recipes_place_orders(shop: Shop) -> None:
    env = {**shop.environment, "DATABASE_URL": f"sqlite:///{shop.directory}/orders.db"}
    recipes = PROJECT / "examples" / "recipes"
    fastapi = ["fastapi_app:app", "--app-dir", str(recipes), "--port", "0"]
    flask = ["flask_app:app", "--chdir", str(recipes), "--bind", "127.0.0.1:0"]
    with shop.single(), shop.program("billing") as billing:
        for number, (module, arguments) in enumerate(
            {"uvicorn": fastapi, "gunicorn": flask}.items()
        ):
            with Running(*arguments, module=module, env=env) as web:
                base = web.wait_for(r"http://127\.0\.0\.1:\d+").group()
                order = {"item": "coffee", "amount": 3}
                answer = httpx.post(f"{base}/orders/o-{number}", json=order, timeout=TIMEOUT)
                assert answer.status_code == 201
            billing.wait_for(rf"^billed o-{number} 3\.0$")
        for arguments in ["place", "o-2"], ["relay"]:
            with Running(*arguments, module="examples.recipes.outbox", env=env) as outbox:
                assert outbox.end() == 0, outbox.everything()
        billing.wait_for(r"^billed o-2 2\.5$")


def test_two_copies(shop: Shop) -> None:
    (shop.directory / "namesrv.conf").unlink()  # of a later page
    with shop.cluster() as master:
        shop.await_both_copies()
        shop.place("o-1", "espresso", "2.5")
        copied = shop.directory / "slave" / "config" / "topics.json"
        deadline = time.monotonic() + TIMEOUT
        while not (copied.exists() and '"orders"' in copied.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        master.process.kill()
        master.process.wait()
        assert '"number":"o-1"' in shop.run("audit.py")
        with shop.master():
            shop.await_both_copies()
            shop.place("o-2", "tea", "3")
            assert shop.run("audit.py").count('"number":') == 2


def test_users(shop: Shop) -> None:
    shop.secure()
    with shop.cluster():
        assert "NoPermission" in shop.run("place.py", "o-1", "tea", "3", fails=True)
        deadline = time.monotonic() + TIMEOUT
        while (said := shop.run("signed.py")) != "SEND_OK\n":  # the slave is not there yet
            assert said == "FLUSH_SLAVE_TIMEOUT\n"
            assert time.monotonic() < deadline


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(900)  # Spark needs minutes to start on a loaded machine
def test_table(shop: Shop) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    shop.secure()
    with shop.cluster():
        for _ in range(2):
            shop.run("signed.py")
        assert "| tea|       2|        6.0|" in shop.run("table.py", timeout=800)
