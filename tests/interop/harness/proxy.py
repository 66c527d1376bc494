"""The official proxy, and the official clients that speak to proxies, as processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .official import Server, Unavailable, cache_directory, need, write_properties
from .ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from .process import Process

_HERE = Path(__file__).parents[1]


def proxy_jars() -> Path:
    """The directory of the official proxy's jars, filled by Maven the first time."""
    return _jars("proxy-5.3.3", "proxy.xml")


def client_jars() -> Path:
    """The directory of the client for Java likewise; its classes do not fit those of the proxy."""
    return _jars("client-java-5.2.0", "client-5.xml")


def _jars(name: str, pom: str) -> Path:
    need("java")
    directory = cache_directory() / name
    if directory.is_dir():
        return directory
    arriving = directory.with_name(f"{name}.{os.getpid()}.part")
    done = subprocess.run(
        [need("mvn"), "-q", "-B", "-f", _HERE / "peers" / pom,
         "dependency:copy-dependencies", f"-DoutputDirectory={arriving}"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(arriving, ignore_errors=True)
        raise Unavailable(f"Maven could not fetch {name}: {done.stdout[-500:]}")
    arriving.rename(directory)
    return directory


def start_local_proxy(
    directory: Path,
    namesrv: str,
    *,
    settings: Mapping[str, object] | None = None,
    memory: tuple[str, ...] = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=512m"),
    wait: bool = True,
) -> Server:
    """The official proxy with a broker in it; its gRPC port is the last part of its address."""
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
    config = home / "rmq-proxy.json"
    config.write_text(
        json.dumps(
            {
                "rocketMQClusterName": "DefaultCluster",
                "namesrvAddr": namesrv,
                "grpcServerPort": grpc,
                "remotingListenPort": remoting,
            }
        )
    )
    process = Process(
        "official proxy",
        [
            need("java"),
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            f"-Duser.home={home}",
            *memory,
            "-cp", f"{proxy_jars()}/*", "org.apache.rocketmq.proxy.ProxyStartup",
            "-pm", "local", "-n", namesrv, "-bc", broker, "-pc", config,
        ],
        log=home / "output.log",
        env={"RMQ_PROXY_HOME": str(home), "ROCKETMQ_HOME": str(home)},
    )  # fmt: skip
    if wait:
        process.wait_for("startup successfully", 180)
    return Server(process, f"127.0.0.1:{broker_port}", f"{grpc}", home / "store")


def java_scenario(directory: Path, endpoint: str, name: str, *, ssl: bool) -> list[str]:
    """What the client for Java says about one scenario."""
    classes = cache_directory() / "java5-classes"
    source = _HERE / "java5" / "Scenario.java"
    if not classes.is_dir() or classes.stat().st_mtime < source.stat().st_mtime:
        shutil.rmtree(classes, ignore_errors=True)
        subprocess.run(
            [need("javac"), "-nowarn", "-cp", f"{client_jars()}/*", "-d", classes, source],
            check=True,
        )
    class_path = f"{classes}{os.pathsep}{client_jars()}/*"
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Duser.home={directory}", "-cp", class_path]
    return _facts([need("java"), *flags, "Scenario", endpoint, str(ssl).lower(), name])


def go_program() -> Path:
    """The compiled client for Go (Go's own cache makes this quick)."""
    program = cache_directory() / "go5-interop"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [need("go"), "build", "-buildvcs=false", "-o", program, "."],
        cwd=_HERE / "go5", capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"the Go client does not build: {done.stderr[-500:]}")
    return program


def go_scenario(endpoint: str, name: str, *, ssl: bool) -> list[str]:
    """The same for Go."""
    return _facts([str(go_program()), endpoint, str(ssl).lower(), name])


def _facts(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    facts = [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]
    if done.returncode:
        raise AssertionError(f"{command[-3:]}: {facts}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return facts
