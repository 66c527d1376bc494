"""docker-compose.yml: valid by the Compose schema, and its commands do what they should.

No container engine is needed: every command the file names runs as a process on loopback, with
ports and paths of the test's own in place of the containers'.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pocketmq.client.admin import Admin
from tests.cli.running import PROJECT, Running, command, environment
from tests.interop.harness.ports import free_port

SERVERS = ("namesrv", "broker-a", "broker-b")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    return loaded


def free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


class Containers:
    """The file's texts, with what a container would have replaced by what the test has."""

    def __init__(self, compose: dict[str, Any], directory: Path) -> None:
        self.services = compose["services"]
        self.directory = directory
        namesrv, a, b, *metrics = free_ports(6)
        # Each container has one of its own.
        self.metrics = dict(zip(SERVERS, metrics, strict=True))
        self.namesrv = f"127.0.0.1:{namesrv}"
        self._replacements = {
            "namesrv:9876": self.namesrv,
            "9876": str(namesrv),
            "10911": str(a),
            "10921": str(b),
            "0.0.0.0": "127.0.0.1",
            "${ADVERTISE:-127.0.0.1}": "127.0.0.1",
            "/data": str(directory / "data"),
        }
        for name, config in compose["configs"].items():
            path = directory / name
            path.write_text(self.localise(config["content"]))
            self._replacements[f"/{name}"] = str(path)

    def localise(self, text: str) -> str:
        # Longest first: "namesrv:9876" before "9876".
        known = sorted(self._replacements, key=len, reverse=True)
        pattern = "|".join(map(re.escape, known))
        return re.sub(pattern, lambda match: self._replacements[match[0]], text)

    def command(self, service: str) -> list[str]:
        """The service's command, as arguments of the image's entry point."""
        given = self.services[service]["command"]
        words = shlex.split(given) if isinstance(given, str) else given
        metrics = self.metrics.get(service)
        more = [] if metrics is None else ["--set", f"metricsPromExporterPort={metrics}"]
        return [*(self.localise(word) for word in words), *more]

    def healthy(self, service: str) -> bool:
        """Runs the service's health check."""
        kind, *check = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        # Compose takes $$ for $; a shell costs little, where Python would take 50 ms each time.
        assert check[0] == "bash"
        port = str(self.metrics[service])
        words = [word.replace("$$", "$").replace("5557", port) for word in check]
        return subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0


@pytest.fixture
def containers(compose: dict[str, Any], tmp_path: Path) -> Containers:
    return Containers(compose, tmp_path)


@pytest.fixture
def cluster(containers: Containers) -> Iterator[dict[str, Running]]:
    with contextlib.ExitStack() as stack:
        running: dict[str, Running] = {}
        for name in SERVERS:
            assert not containers.healthy(name)
            running[name] = stack.enter_context(Running(*containers.command(name)))
            running[name].wait_for("listening on")
        yield running


def test_the_file_is_valid(compose: dict[str, Any]) -> None:
    package = pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    schema = importlib.resources.files(package).joinpath("builtin_schemas/vendor/compose-spec.json")
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(compose)


def test_images_are_stages_of_the_dockerfile(compose: dict[str, Any]) -> None:
    dockerfile = (PROJECT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE)
    built = [service for service in compose["services"].values() if "build" in service]
    assert {service["build"]["target"] for service in built} <= set(stages)
    others = {name for name, service in compose["services"].items() if "build" not in service}
    assert others == {"prometheus", "grafana"}
    # A plain `docker build .` makes the last one.
    assert stages[-1] == "server"
    assert 'ENTRYPOINT ["pocketmq"]' in dockerfile


def test_the_dockerfile_copies_every_package_and_what_the_build_needs() -> None:
    dockerfile = (PROJECT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY ((?:\S+ )+)\S+$", dockerfile, re.MULTILINE))
    words = {word for line in copied for word in line.split()}
    assert {"pocketmq", "pyproject.toml", "README.md", "LICENSE", "pyspark_rocketmq.py"} <= words
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    from_checkout = {word for word in words if not word.startswith(("--", "/"))}
    assert {f"!{word}" for word in from_checkout} <= set(ignored)


def test_published_ports_are_those_listened_on(compose: dict[str, Any]) -> None:
    for name in SERVERS:
        (published,) = compose["services"][name]["ports"]
        host, outside, inside = published.split(":")
        assert host == "127.0.0.1"
        # Brokers tell clients their own port, so it has to be the same outside.
        assert outside == inside
        config = compose["configs"].get(f"{name}.conf", {}).get("content", "")
        assert inside in config or inside in compose["services"][name]["command"]


def test_servers_listen_are_healthy_and_take_messages_on_both_brokers(
    containers: Containers, cluster: dict[str, Running]
) -> None:
    assert all(containers.healthy(name) for name in SERVERS)
    create_topic(containers.namesrv, "numbers")
    numbers = b"".join(b"%d\n" % i for i in range(1000))
    env = environment(NAMESRV_ADDR=containers.namesrv)
    sent = subprocess.run(
        command("send", "numbers", "--batch", "10"),
        input=numbers, env=env, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    pulled = subprocess.run(
        command("pull", "numbers", "--json"),
        env=env, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    messages = [json.loads(line) for line in pulled.stdout.splitlines()]
    assert sorted(int(m["body"]) for m in messages) == list(range(1000))
    assert {m["brokerName"] for m in messages} == {"broker-a", "broker-b"}
    for name in ("broker-a", "broker-b"):
        assert (containers.directory / "data" / name / "commitlog").is_dir()
        assert cluster[name].stop() == 0


def test_prometheus_and_grafana_find_what_they_are_given(compose: dict[str, Any]) -> None:
    config = yaml.safe_load((PROJECT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    [targets] = job["static_configs"]
    assert targets["targets"] == [f"{name}:5557" for name in SERVERS]
    for name in ("prometheus", "grafana"):
        service = compose["services"][name]
        assert service["profiles"] == ["monitoring"]
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (PROJECT / source).exists()
        # Not for other machines.
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
def test_the_spark_job_answers(containers: Containers, cluster: dict[str, Running]) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    create_topic(containers.namesrv, "numbers")
    env = environment(NAMESRV_ADDR=containers.namesrv)
    subprocess.run(
        command("send", "numbers", "--batch", "10"),
        input=b"".join(b"%d\n" % i for i in range(1000)), env=env, timeout=60, check=True,
    )  # fmt: skip
    with Running(*containers.command("spark")) as job:
        code = job.end(timeout=240)
    assert code == 0, job.everything()
    rows = [re.findall(r"\d+", line)[:2] for line in job.out if re.match(r"\W+\d", line)]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert sum(int(row[1]) for row in rows) == 1000


def create_topic(namesrv: str, topic: str) -> None:
    """On both brokers; left to auto-creation it would begin on one."""

    async def create() -> None:
        async with Admin(namesrv=namesrv) as admin:
            assert await admin.create_topic(topic, queues=4) == ["broker-a", "broker-b"]

    asyncio.run(create())
