"""The Grafana dashboard and the alert rules: whole, and about metrics that servers show."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.cluster import measured_cluster
from tests.monitoring.pages import scrape
from tests.monitoring.prometheus import program

PROJECT = Path(__file__).parents[2]
DASHBOARD = PROJECT / "deploy" / "grafana" / "pocketmq.json"
ALERTS = PROJECT / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = Path(__file__).with_name("alerts_test.yml")
PAGE = PROJECT / "docs" / "metrics.md"

#: Metrics of Prometheus itself.
OF_PROMETHEUS = {"up"}
_VARIABLE = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "1m"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


def panels() -> Iterator[tuple[str, str]]:
    """Title and expression of each query."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], without_variables(target["expr"])


def without_variables(expression: str) -> str:
    for name, value in _VARIABLE.items():
        expression = expression.replace(name, value)
    return expression


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def selected(node: Any) -> set[str]:
    """The metrics that an expression names."""
    names = {node.name} if hasattr(node, "matchers") and node.name else set()
    for part in ("expr", "lhs", "rhs", "vector_selector", "param"):
        below = getattr(node, part, None)
        if below is not None and not isinstance(below, (str, int, float)):
            names |= selected(below)
    for below in getattr(node, "args", None) or ():
        names |= selected(below)
    return names


def named_in(expression: str) -> set[str]:
    parser = pytest.importorskip("promql_parser", reason="pip install promql-parser")
    return selected(parser.parse(expression))


@pytest.fixture
async def exported(tmp_path: Path) -> set[str]:
    """The names of all samples that servers can show, also those that have no series yet."""
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    names = set()
    async with measured_cluster(tmp_path) as cluster:
        for port in cluster.ports:
            for family in (await scrape(port)).families.values():
                if family.type == "histogram":
                    names |= {f"{family.name}_{end}" for end in ("bucket", "count", "sum")}
                else:
                    names.add(family.name + ("_total" if family.type == "counter" else ""))
    return names


def test_the_dashboard_is_one_of_grafana() -> None:
    """Grafana's own types read it, and would write the same."""
    package = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="pip install grafana-foundation-sdk"
    )
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    content = dashboard()
    read = package.Dashboard.from_json(content)
    written = json.loads(encoder.JSONEncoder(sort_keys=True).encode(read))
    assert lost(content, written) == []


def lost(before: Any, after: Any, at: str = "") -> list[str]:
    """What is no longer there: a key that the types do not know, or another value."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            each
            for key, value in before.items()
            if value is not None
            for each in (
                lost(value, after[key], f"{at}.{key}") if key in after else [f"{at}.{key}"]
            )
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            each
            for number, (old, new) in enumerate(zip(before, after, strict=True))
            for each in lost(old, new, f"{at}[{number}]")
        ]
    return [] if before == after else [at]


def test_panels_do_not_overlap_and_have_descriptions() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] == "row" or panel["description"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    identifiers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(identifiers) == len(set(identifiers))


async def test_every_panel_and_rule_asks_for_metrics_that_are_exported(exported: set[str]) -> None:
    asked = {name for _, expression in panels() for name in named_in(expression)}
    assert len(asked) > 25
    assert asked - exported == set()
    for rule in rules():
        assert named_in(rule["expr"]) - exported - OF_PROMETHEUS == set(), rule["alert"]


async def test_the_page_lists_every_metric(exported: set[str]) -> None:
    of_servers = PAGE.read_text().partition("## Metrics of clients")[0]
    listed = set(re.findall(r"^\| (`.*?) \|", of_servers, re.MULTILINE))
    words = {name for cell in listed for name in re.findall(r"`((?:rocketmq|pocketmq)_\w+)`", cell)}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported}
    assert words == shown


def test_rules_say_what_is_wrong() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} == set(rule["annotations"])


def test_each_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases: dict[str, set[bool]] = {}
    for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert cases == {rule["alert"]: {True, False} for rule in rules()}


def test_rules_fire_when_they_should_and_only_then() -> None:
    ended = subprocess.run(
        [program("promtool"), "test", "rules", RULE_TESTS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_prometheus_accepts_the_rules() -> None:
    promtool = program("promtool")
    for kind, file in (("rules", ALERTS), ("config", ALERTS.with_name("prometheus.yml"))):
        ended = subprocess.run(
            [promtool, "check", kind, file], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
