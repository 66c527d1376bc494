"""Apache RocketMQ itself: jars by Maven, name server, broker and the Java client as processes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import wire
from .ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from .process import PATIENCE, Process

VERSION = os.environ.get("POCKETMQ_ROCKETMQ", "5.3.3")
"""The release that the tests run against."""
NEWEST = "5.5.0"
VERSION_NAME = f"V{VERSION.replace('.', '_')}"
"""As MQVersion names the release."""
CLIENT_4 = "4.9.8"  # The last 4.9: of that release only the client is run.
PROJECT = Path(__file__).parents[3]
_HERE = Path(__file__).parents[1]
_NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_POMS = {CLIENT_4: "client-4.9.xml"}


class Unavailable(Exception):
    """A tool or a download that the official peers need is missing; the text says which."""


def cache_directory() -> Path:
    """Where jars and compiled programs stay between runs: $POCKETMQ_PEERS or .cache/peers."""
    return Path(os.environ.get("POCKETMQ_PEERS") or PROJECT / ".cache" / "peers").absolute()


def need(tool: str) -> str:
    """The path of a program, or Unavailable."""
    path = shutil.which(tool)
    if path is None:
        raise Unavailable(f"{tool} is not installed")
    return path


def jars(version: str = VERSION) -> Path:
    """The directory of the official jars of one release, filled by Maven the first time."""
    need("java")
    directory = cache_directory() / version
    if directory.is_dir():
        return directory
    maven = need("mvn")
    arriving = directory.with_name(f"{version}.{os.getpid()}.part")
    done = subprocess.run(
        [maven, "-q", "-B", "-f", _HERE / "peers" / _POMS.get(version, "pom.xml"),
         "dependency:copy-dependencies", f"-Drocketmq={version}", f"-DoutputDirectory={arriving}"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(arriving, ignore_errors=True)
        raise Unavailable(f"Maven could not fetch RocketMQ {version}: {done.stdout[-500:]}")
    arriving.rename(directory)
    return directory


def java_classes(version: str = VERSION) -> Path:
    """The programs of tests/interop/java, compiled against one release."""
    home = _HERE / "java"
    sources = sorted([*home.glob("*.java"), *home.glob(f"release{version[0]}/*.java")])
    return compiled(sources, f"{jars(version)}/*")


def compiled(sources: Sequence[Path], class_path: str) -> Path:
    """The directory of the classes of some sources, compiled again when they or the jars change."""
    inputs = [class_path.encode(), *(path.read_bytes() for path in sources)]
    digest = hashlib.sha256(b"".join(inputs)).hexdigest()[:16]
    directory = cache_directory() / f"classes-{digest}"
    if directory.is_dir():
        return directory
    arriving = directory.with_name(f"{directory.name}.{os.getpid()}.part")
    subprocess.run(
        [need("javac"), "-nowarn", "-Xlint:-deprecation", "-cp", class_path, "-d", arriving,
         *sources],
        check=True,
    )  # fmt: skip
    arriving.rename(directory)
    return directory


def go_program(source: str = "go") -> Path:
    """The compiled Go program of tests/interop/SOURCE (Go's own cache makes this quick)."""
    program = cache_directory() / f"{source}-interop"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [need("go"), "build", "-buildvcs=false", "-o", program, "."],
        cwd=_HERE / source, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"the Go client does not build: {done.stderr[-500:]}")
    return program


QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:-UseG1GC", "-XX:+UseSerialGC")
"""Java compiles less, which halves the CPU time of a start, and collects garbage without threads of
its own, which takes another quarter. Benchmarks do without them."""


def java_command(
    home: Path, main: str, *flags: str, classes: Path | None = None, version: str = VERSION
) -> list[str]:
    class_path = f"{jars(version)}/*"
    if classes is not None:
        class_path = f"{classes}{os.pathsep}{class_path}"
    return [
        need("java"),
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        f"-Duser.home={home}",  # The logs of RocketMQ go to user.home/logs.
        *(QUICK_JAVA if classes else ("-XX:+UseG1GC",)),
        *flags,
        "-cp",
        class_path,
        main,
    ]


def write_properties(path: Path, values: Mapping[str, object]) -> Path:
    """A Java properties file; booleans in lower case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in values.items()
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in text.items()))
    return path


@dataclass
class Server:
    """A running server of either make."""

    process: Process
    address: str
    broker_name: str = ""
    store: Path | None = None


def start_name_server(
    directory: Path,
    *,
    port: int | None = None,
    flags: tuple[str, ...] = ("-Xmx256m", *QUICK_JAVA),
    version: str = VERSION,
) -> Server:
    """The official name server, listening."""
    home = directory / "official-namesrv"
    port = port or free_port()
    config = write_properties(
        home / "namesrv.conf",
        {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": home / "kv.json"},
    )
    process = Process(
        "official name server",
        [*java_command(home, _NAME_SERVER, *flags, version=version), "-c", config],
        log=home / "output.log",
        env={"ROCKETMQ_HOME": str(home)},
    )
    process.wait_for("boot success", 2 * PATIENCE)
    return Server(process, f"127.0.0.1:{port}")


_BROKER_FLAGS = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", *QUICK_JAVA)


def spawn_broker(
    directory: Path,
    namesrv: str,
    *,
    name: str = "official",
    store: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
    flags: tuple[str, ...] = _BROKER_FLAGS,
    version: str = VERSION,
) -> Server:
    """The official broker, started but not waited for."""
    home = directory / f"official-broker-{name}"
    store = store or home / "store"
    port = port or free_block(OFFICIAL_BROKER_SPAN)
    address = f"127.0.0.1:{port}"
    config = write_properties(
        home / "broker.conf",
        {
            "namesrvAddr": namesrv,
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "autoCreateTopicEnable": True,
            "enablePropertyFilter": True,
            "mappedFileSizeCommitLog": 16 << 20,
            "diskMaxUsedSpaceRatio": 95,
            **(settings or {}),
        },
    )
    process = Process(
        f"official broker {name}",
        [*java_command(home, _BROKER, *flags, version=version), "-c", config],
        log=home / "output.log",
        env={"ROCKETMQ_HOME": str(home)},
    )
    return Server(process, address, name, store)


def start_broker(
    directory: Path,
    namesrv: str,
    *,
    name: str = "official",
    store: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
    flags: tuple[str, ...] = _BROKER_FLAGS,
    version: str = VERSION,
) -> Server:
    """The official broker, listening and, by the word of the name server, routable."""
    server = spawn_broker(
        directory, namesrv, name=name, store=store, port=port, settings=settings, flags=flags,
        version=version,
    )  # fmt: skip
    server.process.wait_for("boot success", 2 * PATIENCE)
    wire.until(lambda: _routable(server, namesrv), f"{name} routable at {namesrv}", 90, 0.2)
    return server


def _routable(broker: Server, namesrv: str) -> bool:
    if wire.registered_brokers(namesrv).get(broker.broker_name) == broker.address:
        return True
    # The broker's first registration finds no connected name server and the next is 10 s away;
    # a change of its permission, even to the same, makes it register at once.
    wire.call(broker.address, wire.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
    return False


class JavaPeer:
    """The official Java client of one release, see tests/interop/java/Peer.java.

    Threads may call it at the same time; their commands run beside each other. `flags` are those of
    the Java machine.
    """

    def __init__(self, directory: Path, *flags: str, version: str = VERSION) -> None:
        home = directory / f"java-peer-{version}"
        home.mkdir(parents=True, exist_ok=True)
        self.version = version
        command = java_command(
            home, "Peer", "-Xmx256m", "-Dcom.rocketmq.remoting.client.connect.timeout=15000",
            *flags, classes=java_classes(version), version=version,
        )  # fmt: skip
        self._log = (home / "output.log").open("w")
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=home,  # some commands of mqadmin write files there
            env={**os.environ, "ROCKETMQ_HOME": str(home)}, text=True,
        )  # fmt: skip
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="answers of Java", daemon=True)
        self._reader.start()

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Run one command and return its answer; a Java exception becomes JavaError."""
        assert self._child.stdin is not None
        answer: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise JavaError(f"the Java client ended; see {self._log.name}")
            number = next(self._ids)
            self._waiting[number] = answer
            self._child.stdin.write(json.dumps({"id": number, "do": do, **arguments}) + "\n")
            self._child.stdin.flush()
        got = answer.result()
        if "error" in got:
            raise JavaError(f"{do}: {got['error']}\n{got['trace']}")
        return got["ok"]

    def _read(self) -> None:
        """Hands each line to whoever waits for it; its end to all."""
        assert self._child.stdout is not None
        with self._child.stdout:
            for line in self._child.stdout:
                answer = json.loads(line)
                with self._lock:
                    waiting = self._waiting.pop(answer["id"])
                waiting.set_result(answer)
        with self._lock:
            self._ended = True
        for waiting in self._waiting.values():
            waiting.set_exception(JavaError(f"the Java client ended; see {self._log.name}"))

    def mqadmin(self, *args: str) -> str:
        """What `mqadmin ARGS` prints."""
        return str(self("mqadmin", args=list(args)))

    def kill(self) -> None:
        """SIGKILL: its consumers have no time to say goodbye."""
        self._child.kill()
        self.close()

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(5.0)
        self._log.close()


class JavaError(AssertionError):
    """An exception in the official client, with its stack trace."""
