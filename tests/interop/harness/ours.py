"""Our name server and broker as processes, started as a user starts them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from .official import PROJECT, Server, write_properties
from .ports import free_port
from .process import Process


def start_name_server(
    directory: Path, *, port: int | None = None, settings: Mapping[str, object] | None = None
) -> Server:
    """Our name server, listening. `directory` keeps its KV config between starts."""
    home = directory / "namesrv"
    port = port or free_port()
    config = write_properties(
        home / "namesrv.conf",
        {"listenPort": port, "kvConfigPath": home / "kv.json", **(settings or {})},
    )
    process = Process(
        "our name server",
        [sys.executable, "-m", "pocketmq", "namesrv", "-c", config],
        log=home / "output.log",
        cwd=PROJECT,
    )
    process.wait_for("listening")
    return Server(process, f"127.0.0.1:{port}")


def spawn_broker(
    directory: Path,
    namesrv: str,
    *,
    name: str = "ours",
    store: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
) -> Server:
    """Our broker, started but not waited for."""
    home = directory / f"broker-{name}"
    store = store or home / "store"
    port = port or free_port()
    config = write_properties(
        home / "broker.conf",
        {
            "namesrvAddr": namesrv,
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "autoCreateTopicEnable": True,
            "enablePropertyFilter": True,
            "mappedFileSizeCommitLog": 16 << 20,
            **(settings or {}),
        },
    )
    process = Process(
        f"our broker {name}",
        [sys.executable, "-m", "pocketmq", "broker", "-c", config],
        log=home / "output.log",
        cwd=PROJECT,
    )
    return Server(process, f"127.0.0.1:{port}", name, store)


def start_broker(
    directory: Path,
    namesrv: str,
    *,
    name: str = "ours",
    store: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
) -> Server:
    """Our broker; its line says listening once the reachable name servers know it."""
    server = spawn_broker(directory, namesrv, name=name, store=store, port=port, settings=settings)
    server.process.wait_for("listening")
    return server
