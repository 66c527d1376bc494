"""Apache RocketMQ itself: jars by Maven, name server, broker and the Java client as processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import wire
from .ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from .process import Process

VERSION = "5.3.3"
PROJECT = Path(__file__).parents[3]
_HERE = Path(__file__).parents[1]


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


def jars() -> Path:
    """The directory of the official jars, filled by Maven the first time."""
    need("java")
    directory = cache_directory() / VERSION
    if directory.is_dir():
        return directory
    maven = need("mvn")
    arriving = directory.with_name(f"{VERSION}.{os.getpid()}.part")
    done = subprocess.run(
        [maven, "-q", "-B", "-f", _HERE / "peers" / "pom.xml", "dependency:copy-dependencies",
         f"-DoutputDirectory={arriving}"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(arriving, ignore_errors=True)
        raise Unavailable(f"Maven could not fetch RocketMQ {VERSION}: {done.stdout[-500:]}")
    arriving.rename(directory)
    return directory


def java_classes() -> Path:
    """The compiled programs of tests/interop/java; compiled again when a source changed."""
    sources = sorted((_HERE / "java").glob("*.java"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    directory = cache_directory() / f"classes-{digest}"
    if directory.is_dir():
        return directory
    arriving = directory.with_name(f"{directory.name}.{os.getpid()}.part")
    subprocess.run(
        [
            need("javac"),
            "-nowarn",
            "-Xlint:-deprecation",
            "-cp",
            f"{jars()}/*",
            "-d",
            arriving,
            *sources,
        ],
        check=True,
    )
    arriving.rename(directory)
    return directory


def go_program() -> Path:
    """The compiled Go client of tests/interop/go (Go's own cache makes this quick)."""
    program = cache_directory() / "go-interop"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [need("go"), "build", "-buildvcs=false", "-o", program, "."],
        cwd=_HERE / "go", capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"the Go client does not build: {done.stderr[-500:]}")
    return program


def _java(home: Path, main: str, *flags: str, classes: Path | None = None) -> list[str]:
    class_path = f"{jars()}/*" if classes is None else f"{classes}{os.pathsep}{jars()}/*"
    return [
        need("java"),
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        f"-Duser.home={home}",  # The logs of RocketMQ go to user.home/logs.
        "-XX:TieredStopAtLevel=1" if classes else "-XX:+UseG1GC",
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


def start_name_server(directory: Path, *, port: int | None = None) -> Server:
    """The official name server, listening."""
    home = directory / "official-namesrv"
    port = port or free_port()
    config = write_properties(
        home / "namesrv.conf",
        {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": home / "kv.json"},
    )
    process = Process(
        "official name server",
        [*_java(home, "org.apache.rocketmq.namesrv.NamesrvStartup", "-Xmx256m"), "-c", config],
        log=home / "output.log",
        env={"ROCKETMQ_HOME": str(home)},
    )
    process.wait_for("boot success", 120)
    return Server(process, f"127.0.0.1:{port}")


def start_broker(
    directory: Path,
    namesrv: str,
    *,
    name: str = "official",
    store: Path | None = None,
    settings: Mapping[str, object] | None = None,
    memory: tuple[str, ...] = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"),
) -> Server:
    """The official broker, listening and, by the word of the name server, routable."""
    home = directory / f"official-broker-{name}"
    store = store or home / "store"
    port = free_block(OFFICIAL_BROKER_SPAN)
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
        [*_java(home, "org.apache.rocketmq.broker.BrokerStartup", *memory), "-c", config],
        log=home / "output.log",
        env={"ROCKETMQ_HOME": str(home)},
    )
    process.wait_for("boot success", 120)
    server = Server(process, address, name, store)
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
    """The official Java client, see tests/interop/java/Peer.java; `flags` of its machine."""

    def __init__(self, directory: Path, *flags: str) -> None:
        home = directory / "java-peer"
        home.mkdir(parents=True, exist_ok=True)
        command = _java(home, "Peer", "-Xmx256m", *flags, classes=java_classes())
        self._log = (home / "output.log").open("w")
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=home,  # some commands of mqadmin write files there
            env={**os.environ, "ROCKETMQ_HOME": str(home)}, text=True,
        )  # fmt: skip

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Run one command and return its answer; a Java exception becomes JavaError."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise JavaError(f"the Java client ended; see {self._log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise JavaError(f"{do}: {answer['error']}\n{answer['trace']}")
        return answer["ok"]

    def mqadmin(self, *args: str) -> str:
        """What ``mqadmin ARGS`` prints."""
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
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._log.close()


class JavaError(AssertionError):
    """An exception in the official client, with its stack trace."""
