"""The layouts of deploy/kubernetes: each is valid, and its servers take their settings.

`built` puts a layout together as kustomize does, with what these layouts use of it; where kubectl
is installed, a test compares the two.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from pocketmq import __version__
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, load_broker_config
from pocketmq.cli import command_line
from pocketmq.cli.servers.many_brokers import OWN_STOP_SECONDS
from pocketmq.cli.servers.server_command import STOP_SECONDS
from pocketmq.monitoring.exporter import LIVE, PROBE_SECONDS, READY
from pocketmq.namesrv.config import NamesrvConfig, load_namesrv_config
from pocketmq.proxy.config import ProxyConfig, load_proxy_config
from tests.cli.running import PROJECT
from tests.interop.harness.ports import free_port

LAYOUTS = ("single", "replicated", "secured")
#: The oldest and the newest version of Kubernetes that the manifests are checked for.
KUBERNETES = ("1.28", "1.34")
WORKLOADS = ("StatefulSet", "Deployment")
SERVERS = {"namesrv", "broker", "proxy"}

Object = dict[str, Any]
T = TypeVar("T")


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the layouts, with the passwords that the secured one needs."""
    copy = tmp_path_factory.mktemp("deploy") / "kubernetes"
    shutil.copytree(
        PROJECT / "deploy" / "kubernetes", copy, ignore=shutil.ignore_patterns("secrets")
    )
    subprocess.run([copy / "secured" / "make-secrets.sh"], check=True, capture_output=True)
    return copy


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, deploy: Path) -> list[Object]:
    """Every object of a layout."""
    return built(deploy / request.param)


def built(directory: Path) -> list[Object]:
    """The objects of a layout: resources, generated settings, patches, images, namespace."""
    made = yaml.safe_load((directory / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "patches", "images"}
    assert made.keys() <= known | {"configMapGenerator", "secretGenerator"}
    objects: list[Object] = []
    for name in made["resources"]:
        path = directory / name
        objects += (
            built(path) if path.is_dir() else filter(None, yaml.safe_load_all(path.read_text()))
        )
    for kind in ("ConfigMap", "Secret"):
        for generator in made.get(f"{kind[0].lower()}{kind[1:]}Generator", ()):
            generate(objects, kind, generator, directory)
    for patch in made.get("patches", ()):
        touched = [each for each in objects if is_target(each, patch["target"])]
        assert touched, patch
        for each in touched:
            apply(each, yaml.safe_load(patch["patch"]))
    for image in made.get("images", ()):
        for container in containers(objects):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    if "namespace" in made:
        for each in objects:
            if each["kind"] != "Namespace":
                each["metadata"]["namespace"] = made["namespace"]
    return objects


def generate(objects: list[Object], kind: str, generator: Object, directory: Path) -> None:
    data = {Path(file).name: (directory / file).read_text() for file in generator["files"]}
    if generator.get("behavior") == "merge":
        [before] = [
            each
            for each in objects
            if (each["kind"], each["metadata"]["name"]) == (kind, generator["name"])
        ]
        before["data"] |= data
        return
    made: Object = {"apiVersion": "v1", "kind": kind, "metadata": {"name": generator["name"]}}
    if kind == "Secret":
        made["type"] = "Opaque"
        data = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    objects.append(made | {"data": data})


def is_target(each: Object, target: dict[str, str]) -> bool:
    return bool(
        re.fullmatch(target["kind"], each["kind"])
        and re.fullmatch(target["name"], each["metadata"]["name"])
    )


def apply(each: Any, operations: list[Object]) -> None:
    """A JSON patch of replacements."""
    for operation in operations:
        assert operation["op"] == "replace"
        *path, last = (
            int(word) if word.isdigit() else word for word in operation["path"].split("/")[1:]
        )
        at: Any = functools.reduce(lambda place, word: place[word], path, each)
        assert at[last] is not None
        at[last] = operation["value"]


def containers(objects: list[Object]) -> Iterator[Object]:
    for each in objects:
        if each["kind"] in WORKLOADS:
            yield from each["spec"]["template"]["spec"]["containers"]


def workloads(objects: list[Object], *names: str) -> dict[str, Object]:
    found = {each["metadata"]["name"]: each for each in objects if each["kind"] in WORKLOADS}
    assert set(names) <= found.keys()
    return {name: found[name] for name in names} if names else found


def settings_text(objects: list[Object], server: str, file: str) -> str:
    """A file of settings, as the server's container sees it."""
    [each] = workloads(objects, server).values()
    pod = each["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "settings"]
    assert mount["mountPath"] == "/etc/pocketmq"
    assert mount["readOnly"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "settings"]
    kind, name = (
        ("ConfigMap", volume["configMap"]["name"])
        if "configMap" in volume
        else ("Secret", volume["secret"]["secretName"])
    )
    [source] = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    text: str = source["data"][file]
    if kind == "Secret":
        # Readable for the group of the pod, which the server runs in, and for nobody else.
        assert volume["secret"]["defaultMode"] == 0o440
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
        text = base64.b64decode(text).decode()
    return text


def broker_config(objects: list[Object]) -> BrokerConfig:
    return loaded(load_broker_config(settings_text(objects, "broker", "broker.conf")))


def namesrv_config(objects: list[Object]) -> NamesrvConfig:
    return loaded(load_namesrv_config(settings_text(objects, "namesrv", "namesrv.conf")))


def proxy_config(objects: list[Object]) -> ProxyConfig:
    return loaded(load_proxy_config(settings_text(objects, "proxy", "proxy.conf")))


def loaded(result: tuple[T, list[str]]) -> T:
    config, warnings = result
    assert warnings == []
    return config


@pytest.mark.parametrize("version", KUBERNETES)
def test_layouts_are_valid(layout: list[Object], version: str) -> None:
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate"
    )
    for each in layout:
        kubernetes.validate(each, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in layout]
    assert len(names) == len(set(names))
    assert {each["metadata"].get("namespace") for each in layout} == {None, "pocketmq"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_kustomize_builds_the_same(deploy: Path, name: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    text = subprocess.run(
        [kubectl, "kustomize", deploy / name],
        check=True, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(deploy)},
    ).stdout  # fmt: skip
    # Names of generated settings end with a digest, so that a change restarts the pods.
    text, digests = re.subn(r"\bname: pocketmq-[a-z0-9]{10}$", "name: pocketmq", text, flags=re.M)
    text, more = re.subn(
        r"\bsecretName: pocketmq-[a-z0-9]{10}$", "secretName: pocketmq", text, flags=re.M
    )
    assert digests + more > 3

    def place(each: Object) -> tuple[str, str]:
        return each["kind"], each["metadata"]["name"]

    theirs = sorted(yaml.safe_load_all(text), key=place)
    for each in theirs:
        if each["kind"] == "Secret":  # in lines of 70 characters
            each["data"] = {
                file: "".join(content.split()) for file, content in each["data"].items()
            }
    assert theirs == sorted(built(deploy / name), key=place)


def test_every_file_belongs_to_a_layout(deploy: Path) -> None:
    named: set[Path] = set()
    for path in deploy.rglob("kustomization.yaml"):
        made = yaml.safe_load(path.read_text())
        generators = made.get("configMapGenerator", []) + made.get("secretGenerator", [])
        files = [*made["resources"], *(file for each in generators for file in each["files"])]
        named |= {path, *(path.parent / file for file in files)}
    helpers = {deploy / "secured" / "make-secrets.sh", deploy / "secured/secrets/tools.yml"}
    assert {path for path in deploy.rglob("*") if path.is_file()} - named == helpers


def test_images_are_pinned(layout: list[Object]) -> None:
    images = {container["image"] for container in containers(layout)}
    assert f"pocketmq:{__version__}" in images
    assert all(re.search(r":\d+\.\d+\.\d+$", image) for image in images)


def test_servers_take_their_settings_and_listen_on_the_ports_that_are_named(
    layout: list[Object],
) -> None:
    broker, namesrv, proxy = broker_config(layout), namesrv_config(layout), proxy_config(layout)
    listened = {
        "broker": {
            "remoting": broker.listen_port,
            "ha": broker.ha_listen_port,
            "metrics": broker.metrics_prom_exporter_port,
        },
        "namesrv": {
            "remoting": namesrv.listen_port,
            "metrics": namesrv.metrics_prom_exporter_port,
        },
        "proxy": {"grpc": proxy.grpc_server_port},
    }
    for config in (broker, namesrv, proxy):
        assert config.bind_address == "0.0.0.0"
    for name, each in workloads(layout, *SERVERS).items():
        [container] = each["spec"]["template"]["spec"]["containers"]
        options = command_line((name,)).parse_args(container["args"])
        assert str(options.config) == f"/etc/pocketmq/{name}.conf"
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == listened[name]
        [service] = [
            each
            for each in layout
            if each["kind"] == "Service" and each["metadata"]["name"] == name
        ]
        assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
        if "metrics" in ports:
            annotations = each["spec"]["template"]["metadata"]["annotations"]
            assert annotations["prometheus.io/port"] == str(ports["metrics"])
    for config in (broker, namesrv):
        assert config.metrics_exporter_type == "PROM"
    # Nothing is written outside the volume.
    [container] = workloads(layout, "broker")["broker"]["spec"]["template"]["spec"]["containers"]
    store = command_line(("broker",)).parse_args(container["args"]).store
    paths = (namesrv.kv_config_path, namesrv.config_store_path, namesrv.auth_file_path, store)
    assert all(Path("/data") in Path(path).parents for path in paths)


def test_brokers_and_proxies_find_the_name_servers(layout: list[Object]) -> None:
    spec = workloads(layout, "namesrv")["namesrv"]["spec"]
    names = [f"namesrv-{n}.{spec['serviceName']}:9876" for n in range(spec["replicas"])]
    assert broker_config(layout).namesrv_addr == proxy_config(layout).namesrv_addr
    assert broker_config(layout).namesrv_addr == ";".join(names)


def test_probes_ask_what_they_are_for(layout: list[Object]) -> None:
    for name, each in workloads(layout, "broker", "namesrv").items():
        [container] = each["spec"]["template"]["spec"]["containers"]
        # A broker that recovers its store, or a slave that copies a long log, is not to be killed.
        started = LIVE if name == "broker" else READY
        for probe, path in (
            ("startupProbe", started), ("readinessProbe", READY), ("livenessProbe", LIVE),
        ):  # fmt: skip
            asked = container[probe]["httpGet"]
            assert (asked["path"], asked["port"]) == (path, "metrics")
            # Later than the server itself says that its event loop does not answer.
            assert container[probe]["timeoutSeconds"] > PROBE_SECONDS


def test_pods_need_no_rights(layout: list[Object]) -> None:
    user = re.findall(r"^USER (\d+)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)
    for name, each in workloads(layout).items():
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        if name in SERVERS:
            assert {str(pod["securityContext"]["runAsUser"])} == set(user)
        [container] = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_a_node_can_be_drained(layout: list[Object]) -> None:
    """Whatever state its pods are in; and pods of a kind are on different nodes if possible."""
    budgets = {
        each["metadata"]["name"]: each["spec"]
        for each in layout
        if each["kind"] == "PodDisruptionBudget"
    }
    for name, each in workloads(layout).items():
        labels = each["spec"]["selector"]["matchLabels"]
        assert budgets[name]["selector"]["matchLabels"] == labels
        assert budgets[name]["maxUnavailable"] == 1
        assert budgets[name]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        pod = each["spec"]["template"]
        assert pod["metadata"]["labels"] == labels
        [apart] = pod["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
    [proxy] = workloads(layout, "proxy")["proxy"]["spec"]["template"]["spec"]["containers"]
    # Endpoints forget the pod before its port is closed.
    assert proxy["lifecycle"]["preStop"]["exec"]["command"][0] == "sleep"


def test_servers_have_time_to_stop_before_they_are_killed(layout: list[Object]) -> None:
    for each in workloads(layout, *SERVERS).values():
        limit = each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert limit > STOP_SECONDS + OWN_STOP_SECONDS


def admitted(objects: list[Object], component: str, port: str) -> list[Any]:
    """Whom policies let reach a port of the pods of a component; None is everybody."""
    labels = {"app.kubernetes.io/name": "pocketmq", "app.kubernetes.io/component": component}
    found: list[Any] = []
    for each in objects:
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["policyTypes"] == ["Ingress"]
            if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items():
                for rule in each["spec"]["ingress"]:
                    if port in (allowed["port"] for allowed in rule["ports"]):
                        found += rule.get("from", [None])
    return found


def test_policies_admit_whom_a_port_is_for(layout: list[Object]) -> None:
    for name, each in workloads(layout).items():
        [container] = each["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]:
            [source] = admitted(layout, name, port["name"])
            if port["name"] == "metrics":
                assert source is None
            elif port["name"] == "ha":
                label = source["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                assert label == "broker"
            elif port["name"] == "controller":
                [rule] = source["podSelector"]["matchExpressions"]
                assert rule["values"] == ["broker", "controller"]
            else:
                assert source == {"podSelector": {}}


@pytest.mark.parametrize("name", ["replicated", "secured"])
def test_a_group_loses_nothing_that_it_acknowledged(deploy: Path, name: str) -> None:
    objects = built(deploy / name)
    config = broker_config(objects)
    assert config.enable_controller_mode
    assert config.all_ack_in_sync_state_set
    assert (
        1 < config.min_in_sync_replicas < workloads(objects, "broker")["broker"]["spec"]["replicas"]
    )
    text = settings_text(objects, "controller", "controller.conf")
    controllers = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert controllers["enableElectUncleanMaster"] == "false"
    peers = [peer.split("-") for peer in controllers["controllerDLegerPeers"].split(";")]
    [spec] = [each["spec"] for each in workloads(objects, "controller").values()]
    # Ids as the command of the pods makes them, and addresses that brokers have too.
    assert [number for number, _ in peers] == [f"n{n}" for n in range(spec["replicas"])]
    assert ";".join(address for _, address in peers) == config.controller_addr
    [container] = spec["template"]["spec"]["containers"]
    assert controllers["controllerDLegerSelfId"] == "nSELF"
    assert "s/nSELF/n${POD_NAME##*-}/" in container["args"][0]
    services = {
        each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"
    }
    for number, address in peers:
        host, _, port = address.partition(":")
        selector = services[host]["selector"]
        assert selector == {"statefulset.kubernetes.io/pod-name": f"controller-{number[1:]}"}
        assert [each["port"] for each in services[host]["ports"]] == [int(port)]
        assert int(port) in [each["containerPort"] for each in container["ports"]]
    if name == "replicated":
        networks = [ipaddress.ip_network(each) for each in config.ha_allowed_addresses.split(";")]
        assert all(network.is_private or str(network) == "100.64.0.0/10" for network in networks)


async def test_a_broker_of_a_group_starts_with_these_settings(deploy: Path, tmp_path: Path) -> None:
    """Nothing in them is refused; without a controller it has no role."""
    for name in ("replicated", "secured"):
        config = broker_config(built(deploy / name))
        config.store_path_root_dir = str(tmp_path / name)
        config.bind_address = "127.0.0.1"
        config.broker_ip1 = "127.0.0.1"
        config.listen_port = config.metrics_prom_exporter_port = 0
        config.ha_listen_port = free_port()
        config.namesrv_addr = config.controller_addr = "127.0.0.1:1"
        broker = Broker(config)
        await broker.start()
        await broker.stop()


def test_the_secured_layout_asks_everybody_for_a_signature(deploy: Path) -> None:
    objects = built(deploy / "secured")
    broker, namesrv, proxy = broker_config(objects), namesrv_config(objects), proxy_config(objects)
    for config in (broker, namesrv, proxy):
        assert config.authentication_enabled
        assert config.authorization_enabled
        assert config.authentication_whitelist == config.authorization_whitelist == ""
    assert broker.ha_allowed_addresses == ""  # only slaves that sign
    inner = {c.inner_client_authentication_credentials for c in (broker, namesrv, proxy)}
    assert len(inner) == 1
    assert broker.init_authentication_user == namesrv.init_authentication_user
    tools = yaml.safe_load((deploy / "secured" / "secrets" / "tools.yml").read_text())
    user = yaml.safe_load(broker.init_authentication_user)
    assert (tools["accessKey"], tools["secretKey"]) == (user["username"], user["password"])
    assert len(user["password"]) == 48
    assert user["password"] not in inner.pop()
    # The same without authentication, but for what authentication makes unnecessary.
    plain = built(deploy / "replicated")
    open_to_all = settings_text(plain, "broker", "broker.conf").splitlines()
    assert set(open_to_all) - set(settings_text(objects, "broker", "broker.conf").splitlines()) == {
        line for line in open_to_all if "haAllowedAddresses" in line or "private networks" in line
    }


def test_passwords_are_new_each_time_and_never_replaced(deploy: Path, tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(deploy, copy)
    script = copy / "secured" / "make-secrets.sh"
    before = (copy / "secured" / "secrets" / "tools.yml").read_text()
    again = subprocess.run([script], capture_output=True, check=False)
    assert again.returncode != 0
    assert (copy / "secured" / "secrets" / "tools.yml").read_text() == before
    shutil.rmtree(copy / "secured" / "secrets")
    subprocess.run([script, "../single"], check=True, capture_output=True)
    assert (copy / "secured" / "secrets" / "tools.yml").read_text() != before
    for file in (copy / "secured" / "secrets").iterdir():
        assert file.stat().st_mode & 0o077 == 0
    alone = (copy / "secured" / "secrets" / "broker.conf").read_text()
    assert "enableControllerMode" not in alone
    assert loaded(load_broker_config(alone)).authentication_enabled
    ignored = (PROJECT / ".gitignore").read_text().splitlines()
    assert "deploy/kubernetes/secured/secrets/" in ignored
