"""A Kafka server of one process (KRaft), and Spark's Kafka source, fetched by Maven."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from pathlib import Path

from tests.interop.harness.official import (
    Server,
    Unavailable,
    cache_directory,
    need,
    write_properties,
)
from tests.interop.harness.ports import free_block
from tests.interop.harness.process import Process

_HERE = Path(__file__).parent


def jars(name: str, version: str = "") -> Path:
    """Return the directory of the jars of `NAME.xml`, which Maven fills the first time.

    Raises Unavailable.
    """
    directory = cache_directory() / f"kafka-{name}{version}"
    if directory.is_dir():
        return directory
    arriving = directory.with_suffix(".part")
    done = subprocess.run(
        [need("mvn"), "-q", "-B", "-f", _HERE / f"{name}.xml", f"-Dspark={version}",
         "dependency:copy-dependencies", f"-DoutputDirectory={arriving}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(arriving, ignore_errors=True)
        raise Unavailable(f"Maven could not fetch Kafka's {name} {version}: {done.stdout[-500:]}")
    arriving.rename(directory)
    return directory


def start(directory: Path, partitions: int) -> Server:
    """Return a server that keeps its data in `directory`, and makes topics of so many partitions.

    Raises Unavailable.
    """
    java = [need("java"), "-Xms1g", "-Xmx1g", "-cp", f"{jars('server')}/*"]
    port = free_block((0, 1))
    address, controller = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    config = write_properties(
        directory / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": directory / "data",
            "num.partitions": partitions,
            "offsets.topic.replication.factor": 1,
        },
    )
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", config],
        check=True, capture_output=True,
    )  # fmt: skip
    process = Process("Kafka", [*java, "kafka.Kafka", config], log=directory / "kafka.log")
    process.wait_for("Kafka Server started", 120)
    return Server(process, address)
