"""Images, units and workflows are valid, and the commands in them exist."""

from __future__ import annotations

import contextlib
import http.server
import importlib.resources
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pocketmq.cli import command_line
from pocketmq.cli.servers.many_brokers import OWN_STOP_SECONDS
from pocketmq.cli.servers.server_command import STOP_SECONDS
from tests.cli.running import PROJECT

UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))


def test_images_check_their_health_and_are_not_root() -> None:
    dockerfile = (PROJECT / "Dockerfile").read_text()
    final = dockerfile[dockerfile.rindex("FROM ") :]
    assert re.search(r"^HEALTHCHECK ", final, re.MULTILINE)
    [check] = re.findall(r"^    CMD (\[.*\])$", final, re.MULTILINE)
    shell, option, program = json.loads(check)
    assert (shell, option) == ("bash", "-c")

    def healthy(**ports: int) -> bool:
        nobody = {"8082": 1, "9876": 2, "10911": 3}
        given = nobody | {name.lstrip("_"): port for name, port in ports.items()}
        text = re.sub("|".join(given), lambda match: str(given[match[0]]), program)
        ended = subprocess.run(["bash", "-c", text], check=False, timeout=60)
        assert ended.returncode in (0, 1)  # others are reserved
        return ended.returncode == 0

    assert not healthy()
    with serving(200) as ready, serving(503) as unready:
        assert healthy(_8082=ready)
        assert not healthy(_8082=unready)
        # The page counts, whatever listens beside it; without it, a port that listens will do.
        assert not healthy(_8082=unready, _10911=ready)
        assert healthy(_9876=unready)
        assert healthy(_10911=unready)


@contextlib.contextmanager
def serving(status: int) -> Iterator[int]:
    """The port of a server that answers everything with this status."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    content = unit.read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", content, re.MULTILINE)
    executable, *arguments = shlex.split(line)
    command_line((arguments[0],)).parse_args(arguments)
    # It goes on trying, however late a volume or an address appears.
    assert {"StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=5"} <= set(
        content.splitlines()
    )
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    installed = tmp_path / unit.name
    installed.write_text(content.replace(executable, sys.executable))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = [line for line in ended.stderr.splitlines() if unit.name in line]
    assert (ended.returncode, said) == (0, [])


def test_servers_have_time_to_stop_before_they_are_killed() -> None:
    limits = [
        int(seconds)
        for unit in UNITS
        for seconds in re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    ]
    assert len(limits) == len(UNITS)
    # `serve --brokers` needs the most.
    assert min(limits) > STOP_SECONDS + OWN_STOP_SECONDS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_workflows_are_valid(workflow: Path) -> None:
    # YAML 1.1 takes the key `on` for a truth value.
    content = {
        "on" if key is True else key: value
        for key, value in yaml.safe_load(workflow.read_text()).items()
    }
    jsonschema.Draft7Validator(vendored_schema("github-workflows")).validate(content)


def test_updates_of_dependencies_are_configured() -> None:
    configured = yaml.safe_load((PROJECT / ".github" / "dependabot.yml").read_text())
    jsonschema.Draft7Validator(vendored_schema("dependabot")).validate(configured)
    directories = {
        directory
        for update in configured["updates"]
        for directory in update.get("directories", [update.get("directory")])
    }
    assert all((PROJECT / directory.removeprefix("/")).is_dir() for directory in directories)
    modules = {f"/{path.parent.relative_to(PROJECT)}" for path in go_modules()}
    assert modules <= directories


def go_modules() -> list[Path]:
    return [path for top in ("bench", "tests") for path in (PROJECT / top).rglob("go.mod")]


def vendored_schema(name: str) -> Any:
    package = pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    vendored = importlib.resources.files(package).joinpath("builtin_schemas/vendor")
    return json.loads(vendored.joinpath(f"{name}.json").read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_actions_are_named_by_what_they_contain(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)$", workflow.read_text(), re.MULTILINE)
    # The version beside it is for people, and for the updates.
    assert [u for u in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", u)] == []


def workflow_jobs(name: str) -> Any:
    [found] = [yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.stem == name]
    return found["jobs"]


def versions_of_python() -> list[str]:
    """Those that the package names."""
    return re.findall(r"Python :: (3\.\d+)", (PROJECT / "pyproject.toml").read_text())


def test_ci_tries_every_version_of_python_that_the_package_names() -> None:
    ci = workflow_jobs("ci")
    for job in ("test", "accelerator"):
        assert ci[job]["strategy"]["matrix"]["python"] == versions_of_python()


def test_ci_runs_the_tests_in_python_and_compiled() -> None:
    ci = workflow_jobs("ci")
    [pure] = [step["env"] for step in ci["test"]["steps"] if "env" in step]
    [compiled] = [step["env"] for step in ci["accelerator"]["steps"] if "env" in step]
    assert pure["POCKETMQ_PURE_PYTHON"] == "1"
    assert compiled == {"POCKETMQ_ACCELERATOR": "1"}
    script = (PROJECT / ".ci" / "run").read_text()
    rounds = re.findall(r"^(POCKETMQ_\w+=1) make test\b", script, re.MULTILINE)
    assert rounds == ["POCKETMQ_PURE_PYTHON=1", "POCKETMQ_ACCELERATOR=1"]


def test_a_release_has_compiled_wheels_for_every_version_of_python_and_one_for_all() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    built = {f"3.{pattern[3:].removesuffix('-*')}" for pattern in settings["build"]}
    assert set(versions_of_python()) <= built
    # A wheel without them is an error there, not a slow wheel.
    assert settings["environment"] == {"POCKETMQ_ACCELERATOR": "1"}
    release = workflow_jobs("release")
    environments = [step["env"] for step in release["build"]["steps"] if "env" in step]
    assert environments == [{"POCKETMQ_PURE_PYTHON": "1"}]


def test_a_release_is_published_with_what_it_consists_of_and_where_it_comes_from() -> None:
    publish = workflow_jobs("release")["publish"]
    assert set(publish["needs"]) == {"build", "wheels", "sbom"}
    assert publish["permissions"] == {
        "id-token": "write", "attestations": "write", "contents": "write",
    }  # fmt: skip
    actions = [step.get("uses", "").partition("@")[0] for step in publish["steps"]]
    assert actions.index("actions/attest-build-provenance") < actions.index(
        "pypa/gh-action-pypi-publish"
    )
    assert "sbom/*" in publish["steps"][-1]["run"]
