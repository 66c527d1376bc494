"""The official proxy, and the official clients that speak to proxies, as processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pocketmq.auth.users import User

from . import official, wire
from .certificate import Certificate
from .official import Server, Unavailable, cache_directory, need, write_properties
from .ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from .process import Process

_HERE = Path(__file__).parents[1]


def proxy_jars(version: str = official.VERSION) -> Path:
    """The directory of the official proxy's jars, filled by Maven the first time."""
    return _jars(f"proxy-{version}", "proxy.xml", version)


def client_jars() -> Path:
    """The directory of the client for Java likewise; its classes do not fit those of the proxy."""
    return _jars("client-java-5.2.0", "client-5.xml")


def _jars(name: str, pom: str, version: str = official.VERSION) -> Path:
    need("java")
    directory = cache_directory() / name
    if directory.is_dir():
        return directory
    arriving = directory.with_name(f"{name}.{os.getpid()}.part")
    done = subprocess.run(
        [need("mvn"), "-q", "-B", "-f", _HERE / "peers" / pom,
         "dependency:copy-dependencies", f"-Drocketmq={version}",
         f"-DoutputDirectory={arriving}"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(arriving, ignore_errors=True)
        raise Unavailable(f"Maven could not fetch {name}: {done.stdout[-500:]}")
    arriving.rename(directory)
    return directory


MEMORY = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=512m")


def start_local_proxy(
    directory: Path,
    namesrv: str,
    *,
    settings: Mapping[str, object] | None = None,
    own_settings: Mapping[str, object] | None = None,
    certificate: Certificate | None = None,
    flags: tuple[str, ...] = (*MEMORY, *official.QUICK_JAVA),
    wait: bool = True,
    version: str = official.VERSION,
) -> Server:
    """The official proxy with a broker in it; its gRPC port is the last part of its address.

    `settings` are the broker's, `own_settings` the proxy's.
    """
    home = directory / "official-proxy"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    broker_port, grpc, remoting = free_block(OFFICIAL_BROKER_SPAN), free_port(), free_port()
    broker = write_properties(
        home / "broker.conf",
        {
            "namesrvAddr": namesrv,
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": broker_port,
            "haListenPort": broker_port + 1,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "autoCreateTopicEnable": True,
            "enablePropertyFilter": True,
            "mappedFileSizeCommitLog": 64 << 20,
            "diskMaxUsedSpaceRatio": 95,
            **(settings or {}),
        },
    )
    values: dict[str, object] = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": namesrv,
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
        **(own_settings or {}),
    }
    if certificate is not None:
        paths = {"tlsCertPath": str(certificate.chain), "tlsKeyPath": str(certificate.key)}
        values |= {"tlsTestModeEnable": False, **paths}
    config = home / "rmq-proxy.json"
    config.write_text(json.dumps(values))
    process = Process(
        "official proxy",
        [
            need("java"),
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            f"-Duser.home={home}",
            *flags,
            "-cp", f"{proxy_jars(version)}/*", "org.apache.rocketmq.proxy.ProxyStartup",
            "-pm", "local", "-n", namesrv, "-bc", broker, "-pc", config,
        ],
        log=home / "output.log",
        env={"RMQ_PROXY_HOME": str(home), "ROCKETMQ_HOME": str(home)},
    )  # fmt: skip
    if wait:
        process.wait_for("startup successfully", 180)
        # The broker's first registration often fails, and the next is 10 s later.
        wire.until(lambda: bool(wire.registered_brokers(namesrv)), "it is routable", 60, 0.2)
    return Server(process, f"127.0.0.1:{broker_port}", f"{grpc}", home / "store")


def java_scenarios() -> list[str]:
    """The command of the client for Java."""
    classes = official.compiled([_HERE / "java5" / "Scenario.java"], f"{client_jars()}/*")
    class_path = f"{classes}{os.pathsep}{client_jars()}/*"
    return [need("java"), "-Xmx256m", *official.QUICK_JAVA, "-cp", class_path, "Scenario"]


def go_program() -> Path:
    """The compiled client for Go."""
    return official.go_program("go5")


def node_scenarios() -> list[str]:
    """The command of the client for Node.js, which npm installs the first time."""
    home = cache_directory() / "node5"
    if not (home / "node_modules" / "rocketmq-client-nodejs").is_dir():
        home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [need("npm"), "install", "--no-fund", "--no-audit", "rocketmq-client-nodejs@1.0.8"],
            cwd=home, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"npm could not install the client: {done.stderr[-500:]}")
    program = home / "scenario.js"  # beside its modules, where Node.js looks for them
    shutil.copyfile(_HERE / "node5" / "scenario.js", program)
    return [need("node"), str(program)]


#: By language, what gives the command of a client; `ENDPOINT SSL PREFIX NAME...` follow it.
CLIENTS: dict[str, Callable[[], list[str]]] = {
    "java": java_scenarios,
    "go": lambda: [str(go_program())],
    "python": lambda: [sys.executable, str(_HERE / "python5" / "scenario.py")],
    "node": node_scenarios,
}


def scenario_process(
    language: str,
    directory: Path,
    endpoint: str,
    prefix: str,
    *names: str,
    trusted: Path | None = None,
    settle: int = 20,
    user: User | None = None,
) -> subprocess.Popen[str]:
    """Start a client on some scenarios: over TLS with a certificate to trust, else in plaintext.

    `settle`: seconds that push consumers stay after the deliveries that are expected. A message
    goes to the dead letters when it comes once more, which takes 10 s here. `user`: who signs its
    calls.

    Raises Unavailable where the client cannot be had.
    """
    environment = {**os.environ, "HOME": str(directory), "SETTLE_SECONDS": str(settle)}
    if trusted is not None:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(trusted)  # for Python
    if user is not None:
        environment |= {"ACCESS_KEY": user.username, "SECRET_KEY": user.password}
    command = CLIENTS[language]()
    if language == "java":
        command.insert(1, f"-Duser.home={directory}")  # its log
    encrypted = "true" if trusted is not None else "false"
    return subprocess.Popen(
        [*command, endpoint, encrypted, prefix, *names], cwd=directory, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def facts_of(process: subprocess.Popen[str], seconds: float = 240.0) -> dict[str, list[str]]:
    """What a client says of each of its scenarios, once it has ended."""
    output, _ = process.communicate(timeout=seconds)
    facts: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("> "):
            name, _, fact = line[2:].partition(": ")
            facts.setdefault(name, []).append(fact)
    assert process.returncode == 0, f"{facts}\n{output[-4000:]}"
    return facts
