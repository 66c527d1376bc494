"""Manifests, units and workflows are valid, and the commands in them exist."""

from __future__ import annotations

import importlib.resources
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pocketmq.cli import command_line
from pocketmq.cli.many_brokers import OWN_STOP_SECONDS
from pocketmq.cli.server_command import STOP_SECONDS
from pocketmq.monitoring.exporter import LIVE, PROBE_SECONDS, READY
from tests.cli.running import PROJECT

MANIFESTS = sorted((PROJECT / "deploy" / "kubernetes").glob("*.yaml"))
UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
#: The oldest and the newest version of Kubernetes that the manifests are checked for.
KUBERNETES = ("1.28", "1.34")


def objects(manifest: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(manifest.read_text()) if document]


def stateful_sets() -> list[dict[str, Any]]:
    return [each for path in MANIFESTS for each in objects(path) if each["kind"] == "StatefulSet"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid(version: str) -> None:
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate"
    )
    checked = 0
    for manifest in MANIFESTS:
        if manifest.name != "kustomization.yaml":
            for each in objects(manifest):
                kubernetes.validate(each, version, strict=True)
                checked += 1
    assert checked == 11


def test_the_kustomization_has_every_manifest() -> None:
    [kustomization] = [path for path in MANIFESTS if path.name == "kustomization.yaml"]
    [content] = objects(kustomization)
    others = {path.name for path in MANIFESTS} - {kustomization.name}
    assert set(content["resources"]) == others


def test_pods_run_commands_that_exist_on_the_ports_that_they_name() -> None:
    for each in stateful_sets():
        [container] = each["spec"]["template"]["spec"]["containers"]
        options = command_line((container["args"][0],)).parse_args(container["args"])
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        settings = dict(options.settings)
        assert settings["metricsExporterType"] == "PROM"
        assert ports == {
            "remoting": options.listen_port,
            "metrics": int(settings["metricsPromExporterPort"]),
        }
        annotations = each["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/port"] == str(ports["metrics"])
        # A broker that recovers its store, or a slave that copies a long log, is not to be killed.
        started = LIVE if each["metadata"]["name"] == "broker" else READY
        for probe, path in (
            ("startupProbe", started), ("readinessProbe", READY), ("livenessProbe", LIVE),
        ):  # fmt: skip
            asked = container[probe]["httpGet"]
            assert (asked["path"], asked["port"]) == (path, "metrics")
            # Later than the server itself says that its event loop does not answer.
            assert container[probe]["timeoutSeconds"] > PROBE_SECONDS


def test_pods_of_brokers_find_the_name_servers() -> None:
    sets = {each["metadata"]["name"]: each["spec"] for each in stateful_sets()}
    [container] = sets["broker"]["template"]["spec"]["containers"]
    options = command_line(("broker",)).parse_args(container["args"])
    service = sets["namesrv"]["serviceName"]
    names = [f"namesrv-{number}.{service}:9876" for number in range(sets["namesrv"]["replicas"])]
    assert options.namesrv == ";".join(names)


def test_pods_need_no_rights() -> None:
    user = re.findall(r"^USER (\d+)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)
    for each in stateful_sets():
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert {str(pod["securityContext"]["runAsUser"])} == set(user)
        [container] = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        # Nothing is written outside the volume.
        written = [word for word in container["args"] if "Path=" in word or "--store" in word]
        assert written
        assert all("=/data/" in word for word in written)


def test_images_check_their_health_and_are_not_root() -> None:
    dockerfile = (PROJECT / "Dockerfile").read_text()
    final = dockerfile[dockerfile.rindex("FROM ") :]
    assert re.search(r"^HEALTHCHECK ", final, re.MULTILINE)
    [check] = re.findall(r"^    CMD (\[.*\])$", final, re.MULTILINE)
    python, option, program = json.loads(check)
    assert (python, option) == ("python", "-c")
    compile(program, "HEALTHCHECK", "exec")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    content = unit.read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", content, re.MULTILINE)
    executable, *arguments = shlex.split(line)
    command_line((arguments[0],)).parse_args(arguments)
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
    pods = [
        each["spec"]["template"]["spec"]
        for path in MANIFESTS
        for each in objects(path)
        if each["kind"] in ("StatefulSet", "Deployment")
    ]
    limits = [pod["terminationGracePeriodSeconds"] for pod in pods]
    limits += [
        int(seconds)
        for unit in UNITS
        for seconds in re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    ]
    assert len(limits) == 3 + len(UNITS)
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
    rounds = re.findall(r"^(POCKETMQ_\w+=1) make test ", script, re.MULTILINE)
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
